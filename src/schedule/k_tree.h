// The K-tree all-reduce of MeshGEMV (WaferLLM, section 6) among N cores that stand in a line.
//
// The reduction takes K phases. The members of phase 0 are all cores; the members of a later phase are the roots of the
// phase before. Each phase cuts its members into groups of f neighbours, where f is the least number with f^K >= N (the
// last group may be smaller). Within a group, sums run inwards from both ends to the root in the middle:
//
//     N = 9, K = 2, f = 3     0>1<2  3>4<5  6>7<8     phase 0, one hop each
//                               1----->4<-----7       phase 1, three hops each, passing through the cores between
//                         0<1<2<3<4>5>6>7>8           one multicast from the root, 4 hops
//
// A root adds one sum a step: the right end's, then the left end's in the last step. So a phase takes ceil(f/2) steps:
//
//   routing stages of the reduction   about K/2 * N^(1/K); exactly: reduce_steps()
//   hops of the longest path          about N, N/2 to the root and N/2 back; in lockstep: critical_hops()
//   routing paths at the root         K + 1: one a phase, one for the multicast
//   traffic                           each core sends its sum once; the root sends the result once, to all
//
// K = 1 is the pipelined all-reduce from both ends. The paper uses K = 2. (The paper does not give the order within a
// group; its K/2 * N^(1/K) stages and N hops imply that the root is in the middle.)
#pragma once

#include <cstdint>

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

// Use of() to make one.
struct KTree {
  int size;    // N
  int phases;  // K
  int fan;     // f

  // Precondition: supports(size, phases). At run time, a violation gives a tree of no cores.
  static constexpr KTree of(int size, int phases) {
    require(supports(size, phases));
    if (!supports(size, phases)) return {.size = 0, .phases = 0, .fan = 1};
    int fan = 1;
    while (!reaches(fan, size, phases)) ++fan;
    return {size, phases, fan};
  }

  static constexpr const char* kName = "K-tree";
  static constexpr const char* kTeams = "1 core or more, in 1 phase or more";
  static constexpr bool supports(int size, int phases = 1) { return size >= 1 && phases >= 1; }

  // Cores that take part in a phase; members(phases) is 1. Precondition: 0 <= phase <= phases.
  constexpr int members(int phase) const {
    int count = size;
    for (int p = 0; p < phase; ++p) count = ceil_div(count, fan);
    return count;
  }
  constexpr int groups(int phase) const { return members(phase + 1); }
  constexpr int group_size(int phase, int group) const { return least(fan, members(phase) - group * fan); }

  // The member that is the root of a group of `phase`.
  constexpr int root_member(int phase, int group) const { return group * fan + group_size(phase, group) / 2; }
  constexpr int core(int phase, int member) const {
    while (phase > 0) member = root_member(--phase, member);
    return member;
  }
  constexpr int root() const { return core(phases, 0); }

  constexpr int phase_steps(int phase) const {
    const int largest = least(fan, members(phase));
    return largest > 1 ? (largest + 1) / 2 : 0;
  }
  // Steps until the root has the sum. A caller that needs the sum at the root only stops here.
  constexpr int reduce_steps() const {
    int sum = 0;
    for (int phase = 0; phase < phases; ++phase) sum += phase_steps(phase);
    return sum;
  }
  constexpr int steps() const { return size > 1 ? reduce_steps() + 1 : 0; }
  constexpr int pieces() const { return 1; }
  constexpr int traffic() const { return size > 1 ? 1 : 0; }

  // Routing paths that begin or end at the root.
  constexpr int paths_at_root() const {
    int paths = size > 1 ? 1 : 0;
    for (int phase = 0; phase < phases; ++phase) paths += phase_steps(phase) > 0;
    return paths;
  }

  // Precondition: 0 <= rank < size, 0 <= step < steps(). A message is the whole sum, slot 0; no core both sends and
  // receives in one step. The last step is the multicast: to = kEverybody.
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    if (step + 1 == steps()) return rank == root() ? Transfer{.to = kEverybody} : Transfer{.from = root()};
    int member = rank;
    for (int phase = 0; phase < phases; ++phase) {
      if (step < phase_steps(phase)) return in_phase(phase, member, step);
      step -= phase_steps(phase);
      const int group = member / fan;
      if (member != root_member(phase, group)) break;
      member = group;
    }
    return {};
  }

  constexpr bool ends_with(int, int) const { return true; }

 private:
  static constexpr int least(int a, int b) { return a < b ? a : b; }

  static constexpr bool reaches(int fan, int size, int phases) {
    std::int64_t power = 1;  // below size * fan, so it does not overflow
    for (int phase = 0; phase < phases && power < size && fan > 1; ++phase) power *= fan;
    return power >= size;
  }

  constexpr Transfer in_phase(int phase, int member, int step) const {
    const int group = member / fan, first = group * fan, end = first + group_size(phase, group);
    const int top = root_member(phase, group), steps = phase_steps(phase);
    const auto sends = [=](int who) {
      return who < top ? step == steps - (top - who) : who > top && step == steps - 1 - (who - top);
    };
    Transfer t{.reduce = true};
    if (sends(member)) t.to = core(phase, member < top ? member + 1 : member - 1);
    if (first < member && member <= top && sends(member - 1)) t.from = core(phase, member - 1);
    if (top <= member && member + 1 < end && sends(member + 1)) t.from = core(phase, member + 1);
    return t;
  }
};

// Hops of all steps; each step takes as long as its longest path.
constexpr int critical_hops(const KTree& s) {
  int hops = 0;
  for (int step = 0; step < s.steps(); ++step) hops += longest_hop(s, step);
  return hops;
}

static_assert(KTree::supports(1, 1) && !KTree::supports(0, 1) && !KTree::supports(1, 0), "proof failed: supports");
static_assert(KTree::of(9, 2).paths_at_root() == 3 && KTree::of(3, 8).paths_at_root() == 3 &&
                  KTree::of(1, 1).paths_at_root() == 0,
              "proof failed: paths at the root");
static_assert(ProvedReduce<KTree::of(1, 1), KTree::of(2, 1), KTree::of(5, 1), KTree::of(6, 1), KTree::of(9, 2),
                           KTree::of(10, 2), KTree::of(7, 3), KTree::of(3, 8)>::holds &&
              reads_and_writes_apart(KTree::of(10, 2)));
static_assert(KTree::of(9, 2).fan == 3 && KTree::of(9, 2).root() == 4);
static_assert(KTree::of(9, 2).reduce_steps() == 4 && critical_hops(KTree::of(9, 2)) == 2 * 1 + 2 * 3 + 4);

}  // namespace heddle::schedule
