// How one dimension of a matrix is cut over the ranks of a team. Shards may be of unequal length, and empty.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/host_device.h"
#include "device/peers.h"

namespace heddle {

// Rank r has [begin(r), begin(r) + count(r)). Trivially copyable: kernels take it as a parameter.
struct Shards {
  int ranks = 1;
  std::int64_t begins[kMaxPeers + 1] = {};  // [ranks + 1]

  HEDDLE_HOST_DEVICE std::int64_t begin(int rank) const { return begins[rank]; }
  HEDDLE_HOST_DEVICE std::int64_t count(int rank) const { return begins[rank + 1] - begins[rank]; }
  HEDDLE_HOST_DEVICE std::int64_t total() const { return begins[ranks]; }
  std::int64_t largest() const {
    std::int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = count(rank) > most ? count(rank) : most;
    return most;
  }

  // Throws InvalidArgument for no counts, more than kMaxPeers, or a negative one.
  static Shards of(std::span<const std::int64_t> counts) {
    require(!counts.empty() && counts.size() <= static_cast<std::size_t>(kMaxPeers),
            "shards: of {} ranks, expected 1 to {}", counts.size(), kMaxPeers);
    Shards shards{.ranks = static_cast<int>(counts.size())};
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      require(counts[rank] >= 0, "shards: rank {} has {} rows", rank, counts[rank]);
      shards.begins[rank + 1] = shards.begins[rank] + counts[rank];
    }
    return shards;
  }

  // Shards that differ by one at most, longer ones first. Throws as `of`.
  static Shards even(std::int64_t total, int ranks) {
    require(ranks >= 1 && ranks <= kMaxPeers && total >= 0, "shards: {} over {} ranks, expected 1 to {}", total, ranks,
            kMaxPeers);
    Shards shards{.ranks = ranks};
    for (int rank = 0; rank < ranks; ++rank)
      shards.begins[rank + 1] = shards.begins[rank] + total / ranks + (rank < total % ranks ? 1 : 0);
    return shards;
  }
};

}  // namespace heddle
