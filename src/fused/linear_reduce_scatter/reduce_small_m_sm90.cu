// GEMM + reduce-scatter and GEMM + all-reduce of few rows on Hopper. The GEMM of kernels/linear writes this rank's
// product; a kernel that has started beside it by PDL then pushes each rank the rows that it sums, of an all-reduce all
// of them, so that sums cross no link. One trip.
#include <cuda_runtime_api.h>

#include "base/alignment.h"
#include "device/channel_calls.h"
#include "device/launch_sm90.cuh"
#include "fused/linear_reduce_scatter/partial_tiles_sm90.h"
#include "fused/linear_small_m_sm90.h"

namespace heddle {
namespace {

constexpr char kSmallReduce[] = "fused linear: small M";
constexpr int kReduceThreads = 256;

template <int kWidth>
struct alignas(kWidth * sizeof(float)) Floats {
  float values[kWidth];
};

// A slot carries the rows of 128 columns, packed. A block waits for the same columns of other ranks that it has pushed
// itself, so blocks need not all be resident.
struct ReduceSmallM {
  Shards shards;
  TileSlots slots;
  Peers peers;
  const float* product;  // [M, n], packed
  float* y;
  std::int64_t n, y_stride;
  bool to_all;

  __device__ int rows(int rank) const { return static_cast<int>(to_all ? shards.total() : shards.count(rank)); }
  __device__ const float* product_of(int rank) const { return product + (to_all ? 0 : shards.begin(rank) * n); }

  // f(row, column): the first of kWidth floats of `rows` rows of the tile, which the block's threads share.
  template <int kWidth, class F>
  __device__ void each(int rows, int column_tile, F f) const {
    const std::int64_t first = column_tile * kPartialColumns, left = n - first;
    const int columns = static_cast<int>(left < kPartialColumns ? left : kPartialColumns), of_row = columns / kWidth;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < rows * of_row; i += kReduceThreads)
      f(i / of_row, static_cast<int>(first) + i % of_row * kWidth);
  }
  template <int kWidth>
  __device__ static Floats<kWidth>* in_slot(std::byte* slot, int row, int column) {
    return reinterpret_cast<Floats<kWidth>*>(reinterpret_cast<float*>(slot) + row * kPartialColumns +
                                             column % kPartialColumns);
  }

  template <int kWidth>
  __device__ bool push(const DeviceBlock& block, int to, int column_tile) const {
    if (!claim(block, peers, to, slots.channel, column_tile, "small M: credit")) return false;
    std::byte* const there = peers.at(to, slots.arriving(peers.rank, column_tile));
    const float* const from = product_of(to);
    each<kWidth>(rows(to), column_tile, [&](int row, int column) {
      *in_slot<kWidth>(there, row, column) = *reinterpret_cast<const Floats<kWidth>*>(from + row * n + column);
    });
    fill(block, peers, to, slots.channel, column_tile);
    return true;
  }

  // In rank order, so that all ranks have the same bits.
  template <int kWidth>
  __device__ void sum(int column_tile) const {
    const float* const own = product_of(peers.rank);
    each<kWidth>(rows(peers.rank), column_tile, [&](int row, int column) {
      Floats<kWidth> all;
      for (int rank = 0; rank < peers.size; ++rank) {
        const Floats<kWidth> one = rank == peers.rank
                                       ? *reinterpret_cast<const Floats<kWidth>*>(own + row * n + column)
                                       : *in_slot<kWidth>(slots.arriving(rank, column_tile), row, column);
        for (int i = 0; i < kWidth; ++i) all.values[i] = rank == 0 ? one.values[i] : all.values[i] + one.values[i];
      }
      *reinterpret_cast<Floats<kWidth>*>(y + row * y_stride + column) = all;
    });
  }

  template <int kWidth>
  __device__ void run() const {
    const DeviceBlock block;
    const auto column_tiles = static_cast<int>((n + kPartialColumns - 1) / kPartialColumns);
    for (int tile = static_cast<int>(blockIdx.x); tile < column_tiles; tile += static_cast<int>(gridDim.x)) {
      for (int step = 1; step < peers.size; ++step)
        if (const int to = (peers.rank + step) % peers.size; rows(to) > 0 && !push<kWidth>(block, to, tile)) return;
      if (rows(peers.rank) == 0) continue;
      for (int step = 1; step < peers.size; ++step)
        if (!await_full(block, peers, (peers.rank + step) % peers.size, slots.channel, tile, "small M: sum")) return;
      sum<kWidth>(tile);
      for (int step = 1; step < peers.size; ++step)
        give_back(block, peers, (peers.rank + step) % peers.size, slots.channel, tile, 1);
    }
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kReduceThreads) reduce_small_m(const __grid_constant__ ReduceSmallM reduce) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  reduce.run<kWidth>();
}

}  // namespace

void reduce_small_m_sm90(const PartialCall& call, float* product, const Lane& lane) {
  const std::int64_t n = call.weight.out_features;
  linear_small_m({.x = call.x, .weight = call.weight, .y = {product, call.x.rows, n, n, DType::float32}}, lane);
  const ReduceSmallM reduce{.shards = call.rows,
                            .slots = call.partials,
                            .peers = call.peers,
                            .product = product,
                            .y = static_cast<float*>(call.y.data),
                            .n = n,
                            .y_stride = call.y.row_stride,
                            .to_all = call.sums.inbox != nullptr};
  constexpr int kWide = 4;
  const bool is_wide = n % kWide == 0 && call.y.row_stride % kWide == 0 && is_aligned(call.y.data);
  launch_sm90(kSmallReduce, is_wide ? reduce_small_m<kWide> : reduce_small_m<1>,
              {.grid = dim3(static_cast<unsigned>(partial_column_tiles(n))),
               .block = dim3(kReduceThreads),
               .fit = GridFit::trimmed},
              lane, reduce);
}

}  // namespace heddle
