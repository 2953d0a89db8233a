// A ring of ranks that lie on several machines, in which a piece crosses a machine's border once and is then shared
// inside (StreamFusion counts USP's traffic so, appendix D). Every member sees every member's piece, its own first.
//
// Member i is rank first + i * stride; neighbours in rank share a machine. A member meets the pieces machine by machine,
// beginning with its own. Of another machine's pieces 0 .. n-1 the c members of one machine import some each: the j-th
// of them those with number j, j + c, .... It pulls the others from the member that imports them.
//
//   step    of a member j        pulls                                    from
//   0       its own machine      nothing: its own piece                   itself
//   1 ..    its own machine      the pieces j+1, j+2, ... (mod c)         their owners
//   then    each other machine   first its imports j, j+c, ...            their owners, across the border
//                                then the others, from j+1 on (mod n)     their importers on its machine
//
// A member enters a machine's pieces with its imports, which wait for nobody of its own machine. So nobody waits in a
// circle.
//
// Caller: parallel/sequence/, for Ring Attention inside a machine, across machines and across both.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

// What a member sees in a step. Where `from` is the member itself, nothing is pulled.
struct RingPull {
  int piece = 0;
  int from = 0;
  bool crosses = false;  // `from` is the piece's owner, on another machine

  friend constexpr bool operator==(const RingPull&, const RingPull&) = default;
};

struct BorderedRing {
  int size;                   // members; precondition: supported()
  int first = 0;              // rank of member 0
  int stride = 1;             // between the ranks of neighbours
  int ranks_per_machine = 1;  // consecutive ranks share a machine

  static constexpr const char* kName = "bordered ring";
  constexpr bool supported() const { return size >= 1 && first >= 0 && stride >= 1 && ranks_per_machine >= 1; }
  constexpr int steps() const { return size; }

  constexpr int machine(int member) const { return (first + member * stride) / ranks_per_machine; }
  // The first member on the machine of `member`, and the number of members there.
  constexpr int first_beside(int member) const {
    while (member > 0 && machine(member - 1) == machine(member)) --member;
    return member;
  }
  constexpr int count_beside(int member) const {
    int end = member + 1;
    while (end < size && machine(end) == machine(member)) ++end;
    return end - first_beside(member);
  }
  // The member on the machine of `member` that imports a piece of another machine.
  constexpr int importer(int member, int piece) const {
    return first_beside(member) + (piece - first_beside(piece)) % count_beside(member);
  }

  // Precondition: 0 <= member < size, 0 <= step < size.
  constexpr RingPull at(int member, int step) const {
    require(supported() && 0 <= member && member < size && 0 <= step && step < size);
    const int home = first_beside(member), beside = count_beside(member), j = member - home;
    if (step < beside) {
      const int piece = home + (j + step) % beside;
      return {.piece = piece, .from = piece};
    }
    step -= beside;
    int block = (home + beside) % size;  // the first member of the machine whose pieces come next
    while (step >= count_beside(block)) {
      step -= count_beside(block);
      block = (block + count_beside(block)) % size;
    }
    const int count = count_beside(block), imports = j < count ? ceil_div(count - j, beside) : 0;
    if (step < imports) return {.piece = block + j + step * beside, .from = block + j + step * beside, .crosses = true};
    int others = step - imports;  // the pieces that are not imported, in order from j + 1 on
    for (int i = 1; i <= count; ++i) {
      const int number = (j + i) % count;
      if (number % beside == j) continue;
      if (others-- == 0) return {.piece = block + number, .from = home + number % beside};
    }
    return {};
  }
};

// Every member sees each piece once, its own first.
constexpr bool sees_every_piece_once(const BorderedRing& s) {
  for (int member = 0; member < s.size; ++member) {
    Counts seen(1, s.size);
    if (s.at(member, 0) != RingPull{.piece = member, .from = member}) return false;
    for (int step = 0; step < s.steps(); ++step) ++seen.at(0, s.at(member, step).piece);
    for (int piece = 0; piece < s.size; ++piece)
      if (seen.at(0, piece) != 1) return false;
  }
  return true;
}

// Of another machine's piece one member of a machine pulls from the owner, and of pieces of its own machine none
// crosses.
constexpr bool crosses_each_border_once(const BorderedRing& s) {
  for (int member = 0; member < s.size; ++member)
    for (int piece = 0; piece < s.size; ++piece) {
      int crossings = 0;
      for (int other = s.first_beside(member); other < s.first_beside(member) + s.count_beside(member); ++other)
        for (int step = 0; step < s.steps(); ++step) {
          const RingPull pull = s.at(other, step);
          if (pull.piece == piece && s.machine(pull.from) != s.machine(other)) {
            if (!pull.crosses || pull.from != piece || other != s.importer(member, piece)) return false;
            ++crossings;
          }
        }
      if (crossings != (s.machine(piece) != s.machine(member))) return false;
    }
  return true;
}

// Who pulls without crossing finds the piece beside it: at its owner, or at the member that imports it.
constexpr bool pulls_from_who_has_it(const BorderedRing& s) {
  for (int member = 0; member < s.size; ++member)
    for (int step = 0; step < s.steps(); ++step) {
      const RingPull pull = s.at(member, step);
      if (pull.crosses != (s.machine(pull.from) != s.machine(member))) return false;
      if (!pull.crosses && pull.from != pull.piece && pull.from != s.importer(member, pull.piece)) return false;
    }
  return true;
}

// The imports of a machine's pieces come before the pulls that wait for a neighbour.
constexpr bool imports_come_first(const BorderedRing& s) {
  for (int member = 0; member < s.size; ++member)
    for (int step = 1; step < s.steps(); ++step) {
      const RingPull before = s.at(member, step - 1), now = s.at(member, step);
      if (now.crosses && !before.crosses && s.machine(before.piece) == s.machine(now.piece)) return false;
    }
  return true;
}

constexpr bool bordered_ring_is_right(const BorderedRing& s) {
  return sees_every_piece_once(s) && crosses_each_border_once(s) && pulls_from_who_has_it(s) && imports_come_first(s);
}

static_assert(bordered_ring_is_right({.size = 1}), "proof failed: bordered ring");
static_assert(bordered_ring_is_right({.size = 4, .ranks_per_machine = 4}), "proof failed: bordered ring");
static_assert(bordered_ring_is_right({.size = 4, .ranks_per_machine = 1}), "proof failed: bordered ring");
static_assert(bordered_ring_is_right({.size = 6, .ranks_per_machine = 2}), "proof failed: bordered ring");
static_assert(bordered_ring_is_right({.size = 3, .first = 3, .ranks_per_machine = 2}), "proof failed: bordered ring");
static_assert(bordered_ring_is_right({.size = 4, .first = 1, .stride = 2, .ranks_per_machine = 4}),
              "proof failed: bordered ring");

}  // namespace heddle::schedule
