// All-gather on a ring of n ranks: each rank talks to its two neighbours only. It begins with its own piece and hands on to
// the right what came last from the left. Pieces are the slots of one buffer of n slots.
//
// Traffic: a rank sends n - 1 pieces; with pieces of 1/n of a tensor of S bytes that is S(n-1)/n, the lower bound.
//
// Caller: two_hop.h, whose cores shift pieces around a ring laid on a line. Ring Attention over machines of several ranks
// is in bordered_ring.h.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct Ring {
  int size;  // precondition: supports(size)

  static constexpr const char* kName = "ring";
  static constexpr const char* kTeams = "1 rank or more";
  static constexpr bool supports(int size) { return size >= 1; }
  constexpr int steps() const { return size - 1; }
  constexpr int pieces() const { return size; }
  constexpr int traffic() const { return size - 1; }  // pieces that each rank sends

  // Precondition: 0 <= rank < size, 0 <= step < steps(). Sends from and receives into the same buffer.
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    const int piece = mod(rank - step, size);
    return {.to = mod(rank + 1, size), .from = mod(rank - 1, size), .send = piece, .receive = mod(piece - 1, size)};
  }

  constexpr bool starts_with(int rank, int piece) const { return rank == piece; }
  constexpr bool ends_with(int, int) const { return true; }
};

static_assert(Ring::supports(1) && !Ring::supports(0), "proof failed: supports");
static_assert(ProvedGather<Ring{1}, Ring{2}, Ring{3}, Ring{5}>::holds && reads_and_writes_apart(Ring{5}));

}  // namespace heddle::schedule
