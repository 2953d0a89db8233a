// GEMM + reduce-scatter and GEMM + all-reduce on a GPU, without CUDA's headers. Their arguments are checked by
// PartialTiles. Defined only in builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "fused/linear_reduce_scatter/fragments.h"
#include "fused/packet_inbox.h"
#include "fused/shards.h"
#include "fused/tile_channel.h"

namespace heddle {

// A slot's buffer on a GPU has float32 sums of so many columns and rows, in the order of fragments.h.
inline constexpr std::int64_t kPartialColumns = Fragments::kColumns;
constexpr std::int64_t partial_rows(std::int64_t largest_shard) {
  return largest_shard > Fragments::kGroupRows ? 2 * Fragments::kGroupRows : Fragments::kGroupRows;
}

constexpr int partial_column_tiles(std::int64_t n) {
  return static_cast<int>((n + kPartialColumns - 1) / kPartialColumns);
}

struct PartialCall {
  Shards rows;             // of the sum, by the rank that takes it
  Tensor x;                // [M, K of this rank]
  Weight weight;           // [n, K of this rank]
  Tensor y;                // this rank's rows, float32 or of x's dtype; of an all-reduce all rows, float32
  std::int64_t slot_rows;  // partial_rows()
  TileSlots partials;      // slot: row tile of the receiver * column tiles + column tile
  TileSlots sums;          // of an all-reduce, by the rank that sums; without memory of a reduce-scatter
  PacketMemory inbox;      // of calls of few rows
  Peers peers;
  bool own_gpus = true;  // every rank has one; the same on every rank
};

// One kernel: multiplies the tiles of other ranks into their inboxes, and adds their products to its own tiles (a plain
// kernel has an inbox for those as well, and sums behind the GEMM); of an all-reduce it sends the sums to all ranks, and
// takes theirs. `products`: partial_products_bytes() of the lane's device.
void partial_linear_sm90(const PartialCall& call, void* products, const Lane& lane);
std::size_t partial_products_bytes(Device device);

// The same of at most kReduceSmallM rows of x in two kernels, where the inbox holds their packets. `product`: room for M times n sums. Above kLinearBatchRows the first call loads cuBLASLt; ranks that share a GPU
// take tiles there, because a rank whose kernel waits would keep another from loading it.
inline constexpr std::int64_t kReduceSmallM = 256;
bool is_for_small_m(const PartialCall& call);
void reduce_small_m_sm90(const PartialCall& call, float* product, const Lane& lane);

}  // namespace heddle
