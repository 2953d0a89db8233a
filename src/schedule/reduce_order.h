// The order in which a rank multiplies the tiles of a sum over ranks, each of which one rank sums (its owner): a tile of
// another owner is sent there, and an own tile waits for the products of all others, which are added to it. Tiles of other
// owners lead by as many as are multiplied at once, then own ones come between them, and behind them:
//
//   two ranks, two at once     A0 A1 | a0 A2 | a1 A3 | a2 a3       A: the other's, a: its own
//
// So what an own tile waits for was multiplied a round earlier, its way over the link hidden behind a round; and
// transfers spread over the GEMM but for its last round.
//
// No circle of waits: a product that tile `i` waits for has no later a step at its rank than tile `i` has at its owner
// (no_product_comes_late), steps are taken in order, and a tile of another owner waits for no product.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct ReduceOrder {
  int ranks;    // at least 1
  int others;   // tiles that other ranks sum
  int own;      // tiles that this rank sums
  int at_once;  // tiles that this rank multiplies at once, at least 1

  struct Tile {
    bool own;
    int index;  // among the rank's own tiles, or among those of others
  };

  constexpr int steps() const { return others + own; }
  // Tiles of others before the first own one.
  constexpr int lead() const {
    const int wanted = at_once < ranks - 1 ? ranks - 1 : at_once;
    return others < wanted ? others : wanted;
  }
  // Precondition: 0 <= step < steps().
  constexpr Tile at(int step) const {
    const int first = lead();
    if (step < first) return {false, step};
    const int between = others - first, rounds_of_others = ranks > 1 ? between / (ranks - 1) : 0,
              rounds = own < rounds_of_others ? own : rounds_of_others, in_round = (step - first) % ranks;
    if (const int round = (step - first) / ranks; round < rounds)
      return in_round == 0 ? Tile{true, round} : Tile{false, first + round * (ranks - 1) + in_round - 1};
    const int rest = step - first - rounds * ranks, rest_of_others = between - rounds * (ranks - 1);
    return rest < rest_of_others ? Tile{false, others - rest_of_others + rest}
                                 : Tile{true, rounds + rest - rest_of_others};
  }
};

// Tile `index` among those of other owners: the first of each, the next rank's first, then the second of each, ...
// tiles(owner): how many an owner sums.
struct OwnedTile {
  int owner, tile;
};
template <class TilesOf>
constexpr OwnedTile tile_of_others(int ranks, int rank, int index, const TilesOf& tiles) {
  for (int first = 0;;) {  // tiles [first, next) that equally many owners have
    int owners = 0, next = 0;
    for (int step = 1; step < ranks; ++step) {
      const int count = tiles(mod(rank + step, ranks));
      if (count <= first) continue;
      next = owners == 0 || count < next ? count : next;
      ++owners;
    }
    if (index < (next - first) * owners) {
      int owner = rank;
      for (int nth = index % owners; nth >= 0;) {
        owner = mod(owner + 1, ranks);
        if (owner != rank && tiles(owner) > first) --nth;
      }
      return {owner, first + index / owners};
    }
    index -= (next - first) * owners;
    first = next;
  }
}

// A team whose rank r sums tiles[r] tiles and multiplies at_once[r] at once.
template <int kRanks>
struct ReduceTeam {
  int tiles[kRanks];
  int at_once[kRanks];

  constexpr ReduceOrder of(int rank) const {
    int all = 0;
    for (const int count : tiles) all += count;
    return {.ranks = kRanks, .others = all - tiles[rank], .own = tiles[rank], .at_once = at_once[rank]};
  }
  // The step at which `rank` multiplies `owner`'s tile; steps() if it never does, or does so twice.
  constexpr int step_of(int rank, int owner, int tile) const {
    const ReduceOrder order = of(rank);
    int found = order.steps();
    for (int step = 0; step < order.steps(); ++step) {
      const ReduceOrder::Tile at = order.at(step);
      const OwnedTile its = at.own ? OwnedTile{rank, at.index}
                                   : tile_of_others(kRanks, rank, at.index, [this](int peer) { return tiles[peer]; });
      if (its.owner != owner || its.tile != tile) continue;
      if (found < order.steps()) return order.steps();
      found = step;
    }
    return found;
  }
};

template <int kRanks>
constexpr bool every_tile_multiplied_once(const ReduceTeam<kRanks>& team) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (int owner = 0; owner < kRanks; ++owner)
      for (int tile = 0; tile < team.tiles[owner]; ++tile)
        if (team.step_of(rank, owner, tile) == team.of(rank).steps()) return false;
  return true;
}

template <int kRanks>
constexpr bool no_product_comes_late(const ReduceTeam<kRanks>& team) {
  for (int owner = 0; owner < kRanks; ++owner)
    for (int tile = 0; tile < team.tiles[owner]; ++tile)
      for (int rank = 0; rank < kRanks; ++rank)
        if (team.step_of(rank, owner, tile) > team.step_of(owner, owner, tile)) return false;
  return true;
}

static_assert(every_tile_multiplied_once(ReduceTeam<3>{{4, 2, 3}, {2, 2, 2}}),
              "proof failed: every_tile_multiplied_once");
static_assert(no_product_comes_late(ReduceTeam<3>{{4, 2, 3}, {2, 2, 2}}), "proof failed: no_product_comes_late");

}  // namespace heddle::schedule
