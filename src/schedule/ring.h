// A ring of n ranks: each rank talks to its two neighbours only. Pieces are the slots of one buffer of n slots.
//
//                                                                                     pieces that a rank sends
//   Ring               all-gather: rank r begins with piece r, hands on what came last   n - 1
//   RingReduceScatter  rank r ends with the sum of piece r; partial sums travel          n - 1
//   RingAllReduce      RingReduceScatter, then Ring                                      2(n - 1)
//
// With pieces of 1/n of a tensor of S bytes a rank sends S(n-1)/n bytes, and twice that for the all-reduce: the lower
// bound of each. Ring is also the order in which Ring Attention and Cannon's shifts see the pieces of other ranks. The
// sum of piece p is taken in the order p+1, p+2, ..., p: the same bits on all ranks and runs, but not in rank order.
//
// No engine runs them, docs/examples/05_schedule.cpp does. Ring Attention over machines of several ranks is in bordered_ring.h.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct Ring {
  int size;  // precondition of all: supports(size)

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

struct RingReduceScatter {
  int size;

  static constexpr const char* kName = "ring reduce-scatter";
  static constexpr const char* kTeams = "1 rank or more";
  static constexpr bool supports(int size) { return size >= 1; }
  constexpr int steps() const { return size - 1; }
  constexpr int pieces() const { return size; }
  constexpr int traffic() const { return size - 1; }

  // As Ring's. The sender no longer needs the piece it sent.
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    const int piece = mod(rank - step - 1, size);
    return {.to = mod(rank + 1, size),
            .from = mod(rank - 1, size),
            .send = piece,
            .receive = mod(piece - 1, size),
            .reduce = true};
  }

  constexpr bool ends_with(int rank, int piece) const { return rank == piece; }
};

struct RingAllReduce {
  int size;

  static constexpr const char* kName = "ring all-reduce";
  static constexpr const char* kTeams = "1 rank or more";
  static constexpr bool supports(int size) { return size >= 1; }
  constexpr int steps() const { return 2 * (size - 1); }
  constexpr int pieces() const { return size; }
  constexpr int traffic() const { return 2 * (size - 1); }

  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    const RingReduceScatter first{size};
    return step < first.steps() ? first.at(rank, step) : Ring{size}.at(rank, step - first.steps());
  }

  constexpr bool ends_with(int, int) const { return true; }
};

static_assert(Ring::supports(1) && !Ring::supports(0), "proof failed: supports");
static_assert(RingReduceScatter::supports(1) && !RingReduceScatter::supports(0), "proof failed: supports");
static_assert(RingAllReduce::supports(1) && !RingAllReduce::supports(0), "proof failed: supports");
static_assert(ProvedGather<Ring{1}, Ring{2}, Ring{3}, Ring{5}>::holds && reads_and_writes_apart(Ring{5}));
static_assert(ProvedReduce<RingReduceScatter{1}, RingReduceScatter{2}, RingReduceScatter{5}>::holds &&
              reads_and_writes_apart(RingReduceScatter{5}));
static_assert(ProvedReduce<RingAllReduce{1}, RingAllReduce{2}, RingAllReduce{3}, RingAllReduce{5}>::holds &&
              reads_and_writes_apart(RingAllReduce{5}));

}  // namespace heddle::schedule
