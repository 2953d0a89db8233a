// A cluster processes one row after the other; its blocks alternate over pieces of the row.
#include <limits>

#include "device/launch_sm90.cuh"
#include "kernels/sampling/argmax_sm90.h"
#include "kernels/sampling/largest_sm90.cuh"

namespace heddle {
namespace {

constexpr int kArgmaxThreads = 1024;
constexpr int kArgmaxLoads = 8;  // per thread at once

// The token of a row; the same in all threads of the cluster.
template <int kBlocks>
__device__ std::int32_t argmax_of(const ArgmaxParams& params, unsigned row, RowSummary (&warps)[kArgmaxThreads / 32],
                                  RowSummary& block) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kStride = kBlocks * kArgmaxThreads;
  const float* logits = static_cast<const float*>(params.logits.data) + row * params.logits.row_stride;
  const int vocab_size = static_cast<int>(params.logits.columns);
  RowSummary mine{{-kInfinity, kNoToken}, 0, 0};
  float largest = -kInfinity;
  for (std::int64_t first = blockIdx.x * kArgmaxThreads + threadIdx.x; first < vocab_size;
       first += kArgmaxLoads * kStride) {
    float held[kArgmaxLoads];
#pragma unroll
    for (int i = 0; i < kArgmaxLoads; ++i)
      held[i] = first + i * kStride < vocab_size ? logits[first + i * kStride] : -kInfinity;
#pragma unroll
    for (int i = 0; i < kArgmaxLoads; ++i) {
      if (!(held[i] < kInfinity)) mine.unsound = 1;
      if (held[i] > largest) {
        largest = held[i];
        mine.largest.id = static_cast<int>(first + i * kStride);
      }
    }
  }
  mine.largest.logit = largest;
  mine.finite = largest > -kInfinity ? 1 : 0;
  const RowSummary all = join_over_cluster<kArgmaxThreads, kBlocks>(mine, warps, block);
  return all.unsound != 0 || all.finite == 0 ? kUnsoundRow : all.largest.id;
}

template <int kBlocks>
__global__ void __launch_bounds__(kArgmaxThreads) argmax_rows(const __grid_constant__ ArgmaxParams params) {
  __shared__ RowSummary warps[kArgmaxThreads / 32];
  __shared__ RowSummary block;
  let_later_kernels_start();
  wait_for_earlier_kernels();
  for (unsigned row = blockIdx.y; row < params.logits.rows; row += gridDim.y) {
    const std::int32_t token = argmax_of<kBlocks>(params, row, warps, block);
    if (blockIdx.x == 0 && threadIdx.x == 0) params.tokens[row] = token;
    cooperative_groups::this_cluster().sync();  // other blocks may still read this block's shared memory
  }
}

}  // namespace

void argmax_sm90(const ArgmaxParams& params, const Lane& lane) {
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  for (std::int64_t first = 0; first < params.logits.rows; first += kMostRows) {
    ArgmaxParams part = params;
    const std::int64_t left = params.logits.rows - first;
    part.logits.rows = left < kMostRows ? left : kMostRows;
    part.logits.data = static_cast<float*>(params.logits.data) + first * params.logits.row_stride;
    part.tokens = params.tokens + first;
    LaunchShape shape{.grid = dim3(kRowBlocks, static_cast<unsigned>(part.logits.rows)),
                      .block = kArgmaxThreads,
                      .cluster = kRowBlocks,
                      .fit = GridFit::trimmed};
    const int blocks = row_blocks_on("argmax", argmax_rows<kRowBlocks>, shape, lane);
    shape.grid.x = shape.cluster = static_cast<unsigned>(blocks);
    launch_sm90("argmax", blocks == 1 ? argmax_rows<1> : argmax_rows<kRowBlocks>, shape, lane, part);
  }
}

}  // namespace heddle
