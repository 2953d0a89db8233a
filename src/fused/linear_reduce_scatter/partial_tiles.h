// What GEMM + reduce-scatter and GEMM + all-reduce share: each rank multiplies its columns of A with its columns of W,
// tile by tile, straight into the inbox of the rank that sums the tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/buffer.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "base/weight.h"
#include "fabric/fabric.h"
#include "fused/packet_inbox.h"
#include "fused/rows_of.h"
#include "fused/shards.h"
#include "fused/tile_channel.h"

namespace heddle {

// What all calls keep to; the same on every rank.
struct PartialLimits {
  std::int64_t largest_shard = 0;  // rows that a rank sums, at most
  std::int64_t n = 0;              // out_features
  std::int64_t tile_rows = 64;     // of a transfer on the CPU; a GPU has partial_rows()
};

// One call: the product of this rank's columns.
struct PartialProduct {
  Shards rows;    // of y, by the rank that sums them
  Tensor x;       // [M, K of this rank]
  Weight weight;  // [n, K of this rank]
};

// Partial products of float32 in slots of a channel: (sender, tile of the receiver). A tile has tile_rows rows and all
// columns on the CPU; on a GPU it has partial_rows() and kPartialColumns (partial_tiles_sm90.h). Calls of few rows on a GPU
// have packets in their place (reduce_small_m.cuh).
class PartialTiles {
 public:
  // Collective, as TileChannel. Throws InvalidArgument, naming `who`, unless the limits are positive.
  PartialTiles(Fabric& fabric, Ranks team, const PartialLimits& limits, std::string_view who);

  static std::size_t heap_bytes(int world_size, const PartialLimits& limits, DeviceKind device);
  // Of one TileChannel of this shape.
  static std::size_t channel_heap_bytes(int world_size, const PartialLimits& limits, DeviceKind device);
  static TileChannelShape channel_shape(const PartialLimits& limits, DeviceKind device);

  // Throws InvalidArgument unless the product fits the limits and `linear` takes it. `y`: this rank's result, float32 or
  // of x's dtype.
  void check(const PartialProduct& product, const Tensor& y, std::int64_t y_rows, const Lane& lane,
             std::string_view who) const;

  // A whole call on a GPU. `sums`: of an all-reduce, slots by which the sums go to all ranks; else without memory.
  void enqueue_on_gpu(const PartialProduct& product, const Tensor& y, const TileSlots& sums, const Lane& lane);

  // The two halves of a call, on a thread of the CPU. False: a wait has given up.
  // Multiplies the tiles of all ranks, those of the next rank first and its own last (schedule/tile_order.h), so that
  // the transfers hide behind the GEMM.
  bool push(const PartialProduct& product, ThreadPool& pool) const;
  // Waits for all ranks' products of own tile `tile` and stores their sum to `y`, its rows: added in float32 and rank
  // order, and rounded once.
  bool sum(int tile, const Tensor& y) const;

  int tiles(const PartialProduct& product, int rank) const {
    return static_cast<int>((product.rows.count(rank) + limits_.tile_rows - 1) / limits_.tile_rows);
  }
  std::int64_t first_row(int tile) const { return tile * limits_.tile_rows; }
  std::int64_t rows(const PartialProduct& product, int rank, int tile) const;

  const Peers& peers() const { return tiles_.peers(); }
  bool on_gpu() const { return tiles_.fabric().device().kind == DeviceKind::cuda; }

 private:
  PartialLimits limits_;
  TileChannel tiles_;
  PacketInbox inbox_;  // on a GPU, of calls of few rows
  Buffer product_;     // likewise: what the GEMM leaves to be summed, or sent
};

}  // namespace heddle
