// Which rank holds which position of a sequence, where a sequence's keys and values are divided over ranks (context
// parallelism). Positions come in blocks; each round of the ranks takes one block each, and every other round goes
// backwards, for 3 ranks:
//
//   block   0 1 2 | 3 4 5 | 6 7 8 | ...
//   rank    0 1 2 | 2 1 0 | 0 1 2 | ...
//
// So each pair of rounds has as many keys at every rank, and as many pairs of a query and a key that it sees: a query at p
// sees the keys up to p, so a rank that is early in one round is late in the next. A rank's positions ascend with their
// places, so the keys that a query sees are the first ones of each rank: count(rank, p + 1).
#pragma once

#include <cstdint>

#include "schedule/transfer.h"

namespace heddle::schedule {

struct Zigzag {
  int ranks;  // at least 1
  int block;  // positions, at least 1

  // The rank that holds a position.
  constexpr int owner(int position) const {
    const int number = position / block, turn = number % ranks;
    return is_backwards(number / ranks) ? ranks - 1 - turn : turn;
  }
  // The place of a position among those of its owner.
  constexpr int place(int position) const { return position / (block * ranks) * block + position % block; }
  // The position at a place of a rank: the inverse.
  constexpr int position(int rank, int at) const {
    const int round = at / block;
    return (round * ranks + turn(rank, round)) * block + at % block;
  }
  // How many of the first `length` positions the rank holds.
  constexpr int count(int rank, int length) const {
    const int round = length / (block * ranks), rest = length % (block * ranks) - turn(rank, round) * block;
    return round * block + (rest < 0 ? 0 : rest < block ? rest : block);
  }

 private:
  static constexpr bool is_backwards(int round) { return round % 2 == 1; }
  constexpr int turn(int rank, int round) const { return is_backwards(round) ? ranks - 1 - rank : rank; }
};

// Each position is at one rank, at the place behind that of the rank's position before; and the counts say so.
constexpr bool every_position_has_a_place(const Zigzag& s, int length) {
  for (int rank = 0; rank < s.ranks; ++rank) {
    int held = 0;
    for (int position = 0; position < length; ++position) {
      if (s.count(rank, position) != held) return false;
      if (s.owner(position) != rank) continue;
      if (s.place(position) != held || s.position(rank, held) != position) return false;
      ++held;
    }
  }
  return true;
}

// Pairs of a query and a key that it sees, of the keys at `rank`, where positions [begin, end) ask.
constexpr std::int64_t causal_pairs(const Zigzag& s, int rank, int begin, int end) {
  std::int64_t pairs = 0;
  for (int query = begin; query < end; ++query) pairs += s.count(rank, query + 1);
  return pairs;
}

// After whole pairs of rounds every rank has done as much.
constexpr bool causal_work_is_equal(const Zigzag& s, int pairs_of_rounds) {
  const int length = 2 * pairs_of_rounds * s.ranks * s.block;
  for (int rank = 1; rank < s.ranks; ++rank)
    if (causal_pairs(s, rank, 0, length) != causal_pairs(s, 0, 0, length)) return false;
  return true;
}

static_assert(every_position_has_a_place({.ranks = 1, .block = 4}, 30), "proof failed: every_position_has_a_place");
static_assert(every_position_has_a_place({.ranks = 3, .block = 2}, 40), "proof failed: every_position_has_a_place");
static_assert(every_position_has_a_place({.ranks = 4, .block = 1}, 40), "proof failed: every_position_has_a_place");
static_assert(causal_work_is_equal({.ranks = 3, .block = 2}, 3), "proof failed: causal_work_is_equal");
static_assert(causal_work_is_equal({.ranks = 2, .block = 4}, 2), "proof failed: causal_work_is_equal");

}  // namespace heddle::schedule
