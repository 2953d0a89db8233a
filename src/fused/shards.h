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

// The parts of Shards::even in a few words, for kernels and tasks.
struct EvenShards {
  int ranks = 1;
  std::int64_t each = 0, larger = 0;  // rows of a rank; how many ranks have one more

  HEDDLE_HOST_DEVICE std::int64_t begin(int rank) const { return each * rank + (rank < larger ? rank : larger); }
  HEDDLE_HOST_DEVICE std::int64_t end(int rank) const { return begin(rank + 1); }
  HEDDLE_HOST_DEVICE std::int64_t count(int rank) const { return each + (rank < larger ? 1 : 0); }
  HEDDLE_HOST_DEVICE std::int64_t total() const { return each * ranks + larger; }
  HEDDLE_HOST_DEVICE std::int64_t largest() const { return count(0); }

  // Requires ranks >= 1 and total >= 0.
  static EvenShards of(std::int64_t total, int ranks) {
    return {.ranks = ranks, .each = total / ranks, .larger = total % ranks};
  }
};

}  // namespace heddle
