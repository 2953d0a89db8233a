// The tiles of a sharded A: index maths that the producer and the GEMM of every variant share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "fused/shards.h"

namespace heddle {

// Tile t of rank r is rows [first_row(t), first_row(t) + rows(r, t)) of its shard, with all columns(r).
struct ShardTiles {
  Shards shards;
  bool of_rows;        // sharded on M; else on K
  std::int64_t other;  // K if sharded on M, else M
  std::int64_t tile_rows;
  std::size_t element_bytes;

  HEDDLE_HOST_DEVICE std::int64_t shard_rows(int rank) const { return of_rows ? shards.count(rank) : other; }
  HEDDLE_HOST_DEVICE std::int64_t columns(int rank) const { return of_rows ? other : shards.count(rank); }
  // None of an empty shard.
  HEDDLE_HOST_DEVICE int tiles(int rank) const {
    return columns(rank) == 0 ? 0 : static_cast<int>((shard_rows(rank) + tile_rows - 1) / tile_rows);
  }
  HEDDLE_HOST_DEVICE std::int64_t first_row(int tile) const { return tile * tile_rows; }
  HEDDLE_HOST_DEVICE std::int64_t rows(int rank, int tile) const {
    const std::int64_t left = shard_rows(rank) - first_row(tile);
    return left < tile_rows ? left : tile_rows;
  }
  HEDDLE_HOST_DEVICE std::size_t row_bytes(int rank) const {
    return static_cast<std::size_t>(columns(rank)) * element_bytes;
  }
  HEDDLE_HOST_DEVICE std::size_t bytes(int rank, int tile) const {
    return static_cast<std::size_t>(rows(rank, tile)) * row_bytes(rank);
  }
  int most_tiles() const {
    int most = 0;
    for (int rank = 0; rank < shards.ranks; ++rank) most = std::max(most, tiles(rank));
    return most;
  }
};

// This rank's shard in any memory, with rows `row_stride_bytes` apart.
struct OwnShard {
  const std::byte* data = nullptr;
  std::size_t row_stride_bytes = 0;
};

}  // namespace heddle
