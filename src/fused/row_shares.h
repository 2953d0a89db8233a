// Which rank has which rows of a step, where ranks with the same weights divide a step's rows (parallel/context_rows.h).
#pragma once

#include <cstdint>

#include "fused/shards.h"

namespace heddle {

struct RowShares {
  int rank = 0;
  int ranks = 1;
  bool always_whole = false;  // every rank computes all rows of every step

  static constexpr std::int64_t kFewestRows = 8;  // of a rank: weights are read all the same

  bool divides(std::int64_t rows) const { return !always_whole && ranks > 1 && rows >= kFewestRows * ranks; }
  std::int64_t begin(std::int64_t rows, int of) const { return EvenShards::of(rows, ranks).begin(of); }
  std::int64_t count(std::int64_t rows, int of) const { return EvenShards::of(rows, ranks).count(of); }
  // The rank whose share the row is in.
  int owner(std::int64_t rows, std::int64_t row) const {
    int rank_of = 0;
    while (EvenShards::of(rows, ranks).end(rank_of) <= row) ++rank_of;
    return rank_of;
  }
};

}  // namespace heddle
