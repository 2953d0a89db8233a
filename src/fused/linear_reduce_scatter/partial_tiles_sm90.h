// GEMM + reduce-scatter and GEMM + all-reduce on a GPU, without CUDA's headers. Their arguments are checked by
// PartialTiles. Defined only in builds with CUDA.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "fused/shards.h"
#include "fused/tile_channel.h"

namespace heddle {

// Columns of a tile, which is a slot's buffer on a GPU: float32 [tile_rows, kPartialColumns], rows packed.
inline constexpr std::int64_t kPartialColumns = 128;

constexpr int partial_column_tiles(std::int64_t n) {
  return static_cast<int>((n + kPartialColumns - 1) / kPartialColumns);
}

struct PartialCall {
  Shards rows;    // of the sum, by the rank that takes it
  Tensor x;       // [M, K of this rank]
  Weight weight;  // [n, K of this rank]
  Tensor y;       // float32: this rank's rows, or, of an all-reduce, all rows
  std::int64_t tile_rows;
  TileSlots partials;  // slot: row tile of the receiver * column tiles + column tile
  TileSlots sums;      // of an all-reduce, by the rank that sums; without memory of a reduce-scatter
  Peers peers;
};

// One kernel: multiplies the tiles of all ranks into their inboxes, then sums this rank's; of an all-reduce it sends the
// sums to all ranks, and takes theirs.
void partial_linear_sm90(const PartialCall& call, const Lane& lane);

}  // namespace heddle
