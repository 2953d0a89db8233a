// GEMM + reduce-scatter and GEMM + all-reduce on Hopper: the persistent GEMM of tile_gemm_sm90.cuh stores each tile into
// the inbox of the rank that sums it. Blocks wait for blocks of other ranks, and, in the sums, for blocks of their own
// rank: all of them are resident. Each goes through the phases in the same order, so none waits in a circle.
#include "fused/linear_reduce_scatter/partial_tiles_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/channel_calls.h"
#include "fused/tile_gemm_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr char kPartialName[] = "fused linear";

// A tile of the sum: one slot.
struct PartialItem {
  int owner;  // that sums it
  int row_tile, column_tile;
  std::int64_t first_row;  // in the owner's shard
  int rows, columns;       // that exist
  int first_w_row;
};

// Tiles and slots of a call, and its phases after the GEMM.
struct PartialSlots {
  using Item = PartialItem;

  Shards shards;
  TileSlots partials, sums;
  Peers peers;
  float* y;
  std::int64_t n, y_stride;
  int tile_rows, column_tiles;
  bool to_all;  // an all-reduce: y has the rows of all ranks

  __device__ int row_tiles(int owner) const {
    return static_cast<int>((shards.count(owner) + tile_rows - 1) / tile_rows);
  }
  __device__ int items(int owner) const { return row_tiles(owner) * column_tiles; }
  __device__ int slot(const Item& item) const { return item.row_tile * column_tiles + item.column_tile; }

  // Item `index` of an owner: the row tiles of a column follow each other, so that L2 holds its rows of W.
  __device__ Item of_owner(int owner, int index) const {
    const int of_column = row_tiles(owner), row_tile = index % of_column, column_tile = index / of_column;
    const std::int64_t first_row = std::int64_t{row_tile} * tile_rows, left = shards.count(owner) - first_row,
                       first_column = column_tile * kPartialColumns;
    return {.owner = owner,
            .row_tile = row_tile,
            .column_tile = column_tile,
            .first_row = first_row,
            .rows = static_cast<int>(left < tile_rows ? left : tile_rows),
            .columns = static_cast<int>(n - first_column < kPartialColumns ? n - first_column : kPartialColumns),
            .first_w_row = static_cast<int>(first_column)};
  }

  __device__ int count() const {
    int all = 0;
    for (int rank = 0; rank < peers.size; ++rank) all += items(rank);
    return all;
  }
  // Those of the next rank first, this rank's last, so that transfers hide behind the GEMM.
  __device__ Item at(int index) const {
    int owner = (peers.rank + 1) % peers.size;
    for (; index >= items(owner); owner = (owner + 1) % peers.size) index -= items(owner);
    return of_owner(owner, index);
  }

  // Where this rank's product of the item goes, at the rank that sums it.
  __device__ float* product(const Item& item) const {
    return reinterpret_cast<float*>(peers.at(item.owner, partials.arriving(peers.rank, slot(item))));
  }

  template <VotingGroup G>
  __device__ bool begin_product(const G& group, const Item& item) const {
    return claim(group, peers, item.owner, partials.channel, slot(item), "reduce: credit");
  }
  template <Group G>
  __device__ void end_product(const G& group, const Item& item) const {
    fill(group, peers, item.owner, partials.channel, slot(item));
  }

  __device__ float* y_row(const Item& item, int row) const {
    return y + ((to_all ? shards.begin(item.owner) : 0) + item.first_row + row) * y_stride + item.first_w_row;
  }

  // f(row, column) for the item's elements, which the group's lanes share.
  template <Group G, class F>
  __device__ static void each_element(const G& group, const Item& item, F f) {
    for (int i = group.lane(); i < item.rows * static_cast<int>(kPartialColumns); i += group.lanes()) {
      const int row = i / static_cast<int>(kPartialColumns), column = i % static_cast<int>(kPartialColumns);
      if (column < item.columns) f(row, column);
    }
  }

  // Adds the ranks' products in rank order. False: a wait has given up.
  template <VotingGroup G>
  __device__ bool sum(const G& group, const Item& item) const {
    const int at = slot(item);
    for (int rank = 0; rank < peers.size; ++rank)
      if (!await_full(group, peers, rank, partials.channel, at, "reduce: tile")) return false;
    each_element(group, item, [&](int row, int column) {
      float all = 0;
      for (int rank = 0; rank < peers.size; ++rank) {
        const float part = reinterpret_cast<const float*>(partials.arriving(rank, at))[row * kPartialColumns + column];
        all = rank == 0 ? part : all + part;
      }
      y_row(item, row)[column] = all;
    });
    for (int rank = 0; rank < peers.size; ++rank) give_back(group, peers, rank, partials.channel, at, 1);
    return true;
  }

  template <VotingGroup G>
  __device__ bool send_sum(const G& group, const Item& item) const {
    group.sync();  // the sum is in y
    const int at = slot(item);
    for (int step = 1; step < peers.size; ++step) {
      const int to = (peers.rank + step) % peers.size;
      if (!claim(group, peers, to, sums.channel, at, "sum: credit")) return false;
      auto* const there = reinterpret_cast<float*>(peers.at(to, sums.arriving(peers.rank, at)));
      each_element(group, item,
                   [&](int row, int column) { there[row * kPartialColumns + column] = y_row(item, row)[column]; });
      fill(group, peers, to, sums.channel, at);
    }
    return true;
  }

  template <VotingGroup G>
  __device__ bool take_sum(const G& group, const Item& item) const {
    const int at = slot(item);
    if (!await_full(group, peers, item.owner, sums.channel, at, "sum: tile")) return false;
    const auto* const here = reinterpret_cast<const float*>(sums.arriving(item.owner, at));
    each_element(group, item,
                 [&](int row, int column) { y_row(item, row)[column] = here[row * kPartialColumns + column]; });
    give_back(group, peers, item.owner, sums.channel, at, 1);
    return true;
  }

  template <VotingGroup G>
  __device__ void finish(const G& group) const {
    const int first = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    for (int index = first; index < items(peers.rank); index += blocks) {
      const Item item = of_owner(peers.rank, index);
      if (!sum(group, item)) return;
      if (to_all && !send_sum(group, item)) return;
    }
    if (!to_all) return;
    for (int step = 1; step < peers.size; ++step) {
      const int owner = (peers.rank + step) % peers.size;
      for (int index = first; index < items(owner); index += blocks)
        if (!take_sum(group, of_owner(owner, index))) return;
    }
  }
};

// The threads that multiply: all warps behind the first warpgroup.
template <class TileShape>
__device__ DeviceWarps multipliers() {
  constexpr int kBarrier = 1;
  return {tile_gemm::kGroupThreads / 32, TileShape::kMultipliers / 32, kBarrier};
}

template <class TileShape>
struct PartialWork {
  using Item = PartialItem;

  CUtensorMap x, w;
  PartialSlots slots;
  const float* bias;
  int k_steps;

  __device__ int count() const { return slots.count(); }
  __device__ Item at(int index) const { return slots.at(index); }
  __device__ const CUtensorMap& w_map() const { return w; }
  __device__ int steps(const Item&) const { return k_steps; }

  template <class Load>
  __device__ void each_step(const Item& item, const Load& load) const {
    const auto row = static_cast<int>(slots.shards.begin(item.owner) + item.first_row);
    for (int k = 0; k < k_steps; ++k)
      load(TileShape::X::kBytes, k * tile_gemm::kDepth,
           [&](std::uint32_t to, std::uint32_t full) { sm90::copy_box(to, x, k * tile_gemm::kDepth, row, full); });
  }
  __device__ void loaded(const Item&) const {}

  // A wait that gives up is in the record, and what is stored then is undefined.
  __device__ void begin_store(const Item& item) const {
    static_cast<void>(slots.begin_product(multipliers<TileShape>(), item));
  }
  __device__ void store(const Item& item, int row, int column, float first, float second) const {
    if (bias != nullptr) {
      first += bias[item.first_w_row + column];
      if (column + 1 < item.columns) second += bias[item.first_w_row + column + 1];
    }
    *reinterpret_cast<float2*>(slots.product(item) + row * kPartialColumns + column) = make_float2(first, second);
  }
  __device__ void end_store(const Item& item) const { slots.end_product(multipliers<TileShape>(), item); }
};

template <class T, class TileShape>
__global__ void __launch_bounds__(TileShape::kThreads, 1)
    partial_tiles(const __grid_constant__ PartialWork<TileShape> work, const __grid_constant__ KernelWaits waits) {
  if (tile_gemm::run<T, TileShape>(work, waits)) work.slots.finish(multipliers<TileShape>());
}

// Any dtypes, alignment and tile_rows: a block takes a tile, a thread elements of it.
constexpr int kPlainPartialThreads = 256;

struct LinearOperand {
  const void* data;  // [n, x.columns]
  DType dtype;
  const float* bias;  // null: none
};

__global__ void __launch_bounds__(kPlainPartialThreads)
    partial_plain(const __grid_constant__ PartialSlots slots, const __grid_constant__ Tensor x,
                  const __grid_constant__ LinearOperand w) {
  const DeviceBlock block;
  for (int index = static_cast<int>(blockIdx.x); index < slots.count(); index += static_cast<int>(gridDim.x)) {
    const PartialItem item = slots.at(index);
    if (!slots.begin_product(block, item)) return;
    float* const to = slots.product(item);
    const std::int64_t x_row = slots.shards.begin(item.owner) + item.first_row;
    PartialSlots::each_element(block, item, [&](int row, int column) {
      const std::int64_t w_row = item.first_w_row + column;
      float sum = 0;
      for (std::int64_t k = 0; k < x.columns; ++k)
        sum = fmaf(load_element(x.data, (x_row + row) * x.row_stride + k, x.dtype),
                   load_element(w.data, w_row * x.columns + k, w.dtype), sum);
      to[row * kPartialColumns + column] = w.bias == nullptr ? sum : sum + w.bias[w_row];
    });
    slots.end_product(block, item);
  }
  slots.finish(block);
}

PartialSlots slots_of(const PartialCall& call) {
  return {.shards = call.rows,
          .partials = call.partials,
          .sums = call.sums,
          .peers = call.peers,
          .y = static_cast<float*>(call.y.data),
          .n = call.weight.out_features,
          .y_stride = call.y.row_stride,
          .tile_rows = static_cast<int>(call.tile_rows),
          .column_tiles = partial_column_tiles(call.weight.out_features),
          .to_all = call.sums.inbox != nullptr};
}

// Tiles of the largest rank's share, times ranks: enough blocks for any order.
int blocks_for(const PartialCall& call, const Lane& lane) {
  std::int64_t tiles = 0;
  for (int rank = 0; rank < call.rows.ranks; ++rank) tiles += ceil_div(call.rows.count(rank), call.tile_rows);
  return static_cast<int>(
      std::clamp<std::int64_t>(tiles * partial_column_tiles(call.weight.out_features), 1, lane.num_sms));
}

bool is_for_partial_tiles(const PartialCall& call) {
  const DType dtype = call.weight.dtype;
  return dtype != DType::float32 && call.x.dtype == dtype && (call.tile_rows == 64 || call.tile_rows == 128) &&
         call.x.columns % 8 == 0 && is_aligned(call.x.data) && call.x.row_stride % 8 == 0 &&
         is_aligned(call.weight.row(0));
}

template <class T, class TileShape>
void enqueue_partial_tiles(const PartialCall& call, const Lane& lane) {
  static_assert(TileShape::kColumns == kPartialColumns);
  const auto map = [&](const void* data, std::int64_t rows, std::int64_t stride, int box_rows) {
    return sm90::tensor_map(kPartialName, {.data = data,
                                           .rows = static_cast<std::uint64_t>(rows),
                                           .columns = static_cast<std::uint64_t>(call.x.columns),
                                           .row_stride = static_cast<std::uint64_t>(stride),
                                           .box_rows = static_cast<std::uint32_t>(box_rows),
                                           .box_columns = tile_gemm::kDepth,
                                           .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                           .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
  };
  const PartialWork<TileShape> work{
      .x = map(call.x.data, call.x.rows, call.x.row_stride, TileShape::kRows),
      .w = map(call.weight.row(0), call.weight.out_features, call.x.columns, TileShape::kColumns),
      .slots = slots_of(call),
      .bias = call.weight.bias,
      .k_steps = static_cast<int>(ceil_div<std::int64_t>(call.x.columns, tile_gemm::kDepth))};
  launch_sm90(kPartialName, partial_tiles<T, TileShape>,
              {.grid = dim3(static_cast<unsigned>(blocks_for(call, lane))),
               .block = dim3(TileShape::kThreads),
               .shared_bytes = tile_gemm::shared_bytes<TileShape>(),
               .programmatic = false,
               .fit = GridFit::resident},
              lane, work, KernelWaits{.limit = call.peers.waits, .tag = "reduce: GEMM"});
}

}  // namespace

void partial_linear_sm90(const PartialCall& call, const Lane& lane) {
  if (!is_for_partial_tiles(call)) {
    launch_sm90(kPartialName, partial_plain,
                {.grid = dim3(static_cast<unsigned>(blocks_for(call, lane))),
                 .block = dim3(kPlainPartialThreads),
                 .programmatic = false,
                 .fit = GridFit::resident},
                lane, slots_of(call), call.x, LinearOperand{call.weight.row(0), call.weight.dtype, call.weight.bias});
    return;
  }
  with_16_bit_element(call.weight.dtype, [&]<class T>() {
    if (call.tile_rows == 128) return enqueue_partial_tiles<T, tile_gemm::Shape<128, 128>>(call, lane);
    enqueue_partial_tiles<T, tile_gemm::Shape<64, 128>>(call, lane);
  });
}

}  // namespace heddle
