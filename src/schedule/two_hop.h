// INTERLEAVE (WaferLLM, Alg. 1): a ring of N >= 3 cores on a line in which neighbours in the ring are at most two hops
// apart. The ring runs out over the even cores and back over the odd ones: 0 2 4 ... 5 3 1. One hop everywhere is
// impossible because the ends of a line have one neighbour only; a ring in line order has one path of N-1 hops.
//
// `at` shifts pieces around that ring as Ring says: piece p begins at core p, and after N - 1 steps every core has seen
// every piece, as the compute-shift loop of MeshGEMM requires. Traffic: a core sends N - 1 pieces. No link between
// neighbouring cores carries more than one piece a step in each direction.
#pragma once

#include "schedule/proofs.h"
#include "schedule/ring.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct TwoHop {
  int size;  // precondition: supports(size)

  static constexpr const char* kName = "INTERLEAVE";
  static constexpr const char* kTeams = "3 cores or more";
  static constexpr bool supports(int size) { return size >= 3; }
  constexpr int steps() const { return size - 1; }
  constexpr int pieces() const { return size; }
  constexpr int traffic() const { return size - 1; }  // pieces that each core sends

  // The core's two neighbours in the ring, as in Alg. 1, line by line. Precondition: 0 <= core < size.
  constexpr int send_index(int core) const {
    require(supports(size) && 0 <= core && core < size);
    if (core == size - 1 && size % 2 != 0) return size - 2;
    if (core % 2 == 0) return core + 2 < size ? core + 2 : size - 1;
    return core >= 2 ? core - 2 : 0;
  }
  constexpr int receive_index(int core) const {
    require(supports(size) && 0 <= core && core < size);
    if (core == 0) return 1;
    if (core == size - 1 && size % 2 == 0) return size - 2;
    if (core % 2 == 0) return core - 2;
    return core + 2 < size ? core + 2 : size - 1;
  }

  // A core's position in the ring, and back. Precondition: both lie in [0, size).
  constexpr int position(int core) const { return core % 2 == 0 ? core / 2 : size - (core + 1) / 2; }
  constexpr int core_at(int position) const { return 2 * position < size ? 2 * position : 2 * (size - position) - 1; }

  // Precondition: 0 <= core < size, 0 <= step < steps(). Sends from and receives into the same buffer.
  constexpr Transfer at(int core, int step) const {
    require_step(*this, core, step);
    const Transfer of_ring = Ring{size}.at(position(core), step);
    return {.to = send_index(core),
            .from = receive_index(core),
            .send = core_at(of_ring.send),
            .receive = core_at(of_ring.receive)};
  }

  constexpr bool starts_with(int core, int piece) const { return core == piece; }
  constexpr bool ends_with(int, int) const { return true; }
};

constexpr bool all_ways_are_two_hops_at_most(const TwoHop& s) {
  for (int step = 0; step < s.steps(); ++step)
    if (longest_hop(s, step) > 2) return false;
  return true;
}

// In a step no link of the line carries two messages in the same direction.
constexpr bool no_link_carries_two(const TwoHop& s) {
  for (int link = 0; link + 1 < s.size; ++link) {  // between the cores `link` and `link` + 1
    int rightwards = 0, leftwards = 0;
    for (int core = 0; core < s.size; ++core) {
      rightwards += core <= link && s.send_index(core) > link;
      leftwards += core > link && s.send_index(core) <= link;
    }
    if (rightwards > 1 || leftwards > 1) return false;
  }
  return true;
}

static_assert(TwoHop::supports(3) && !TwoHop::supports(2) && !TwoHop::supports(0), "proof failed: supports");
static_assert(ProvedGather<TwoHop{3}, TwoHop{4}, TwoHop{5}, TwoHop{8}>::holds && reads_and_writes_apart(TwoHop{5}));
static_assert(all_ways_are_two_hops_at_most(TwoHop{4}) && no_link_carries_two(TwoHop{4}), "proof failed: two hops");
static_assert(all_ways_are_two_hops_at_most(TwoHop{5}) && no_link_carries_two(TwoHop{5}), "proof failed: two hops");

}  // namespace heddle::schedule
