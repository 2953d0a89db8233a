// The order in which a rank reads the tiles of all ranks: its own first, then those of the next rank, and so on around
// the team. The loops of "Eliminating Multi-GPU Performance Taxes" (Alg. 1 to 4: for s = 0 .. W-1 on every rank) make
// all ranks read (or write) rank 0 at once, then rank 1. With an offset by rank, each rank is read by one other at a
// time, and work begins on local tiles. Traffic is the same: each rank reads each tile once.
//
// Only the order differs between ranks. Sums taken in this order may differ in their low-order bits from rank to rank;
// a caller that needs the same bits adds in the order of the owners.
//
// Its callers are in fused/: all-gather + GEMM, and GEMM + reduce-scatter, whose own tiles come last.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct TileRead {
  int owner;  // the rank that holds it
  int tile;   // its number there

  friend constexpr bool operator==(const TileRead&, const TileRead&) = default;
};

struct TileOrder {
  int size;            // ranks; precondition: supports(size)
  int tiles_per_rank;  // at least 0

  static constexpr const char* kName = "tile order";
  static constexpr const char* kTeams = "1 rank or more";
  static constexpr bool supports(int size) { return size >= 1; }
  constexpr int steps() const { return size * tiles_per_rank; }

  // The tile that rank `rank` reads at `step`. Precondition: 0 <= rank < size, 0 <= step < steps().
  constexpr TileRead at(int rank, int step) const {
    require_step(*this, rank, step);
    return {.owner = mod(rank + step / tiles_per_rank, size), .tile = step % tiles_per_rank};
  }
};

constexpr bool every_tile_read_once(const TileOrder& s) {
  for (int rank = 0; rank < s.size; ++rank) {
    Counts reads(s.size, s.tiles_per_rank);
    for (int step = 0; step < s.steps(); ++step) ++reads.at(s.at(rank, step).owner, s.at(rank, step).tile);
    for (int owner = 0; owner < s.size; ++owner)
      for (int tile = 0; tile < s.tiles_per_rank; ++tile)
        if (reads.at(owner, tile) != 1) return false;
  }
  return true;
}

// At no step do two ranks read the same rank.
constexpr bool no_owner_is_crowded(const TileOrder& s) {
  for (int step = 0; step < s.steps(); ++step) {
    Counts readers(1, s.size);
    for (int rank = 0; rank < s.size; ++rank)
      if (++readers.at(0, s.at(rank, step).owner) > 1) return false;
  }
  return true;
}

static_assert(TileOrder::supports(1) && !TileOrder::supports(0), "proof failed: supports");
static_assert(every_tile_read_once(TileOrder{5, 3}), "proof failed: every_tile_read_once");
static_assert(no_owner_is_crowded(TileOrder{5, 3}) && TileOrder{5, 3}.at(2, 0) == TileRead{2, 0},
              "proof failed: no_owner_is_crowded");

}  // namespace heddle::schedule
