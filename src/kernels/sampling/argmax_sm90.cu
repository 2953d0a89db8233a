// A cluster takes a row, block-wide pieces of it in turn.
#include <limits>

#include "device/launch_sm90.cuh"
#include "kernels/sampling/argmax_sm90.h"
#include "kernels/sampling/largest_sm90.cuh"

namespace heddle {
namespace {

constexpr int kArgmaxThreads = 1024;
constexpr int kArgmaxLoads = 8;  // of a thread at once

__global__ void __cluster_dims__(kRowBlocks, 1, 1) __launch_bounds__(kArgmaxThreads)
    argmax_rows(const __grid_constant__ ArgmaxParams params) {
  __shared__ RowSummary warps[kArgmaxThreads / 32];
  __shared__ RowSummary block;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kStride = kRowBlocks * kArgmaxThreads;
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const float* logits = static_cast<const float*>(params.logits.data) + blockIdx.y * params.logits.row_stride;
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
  const RowSummary all = join_over_cluster<kArgmaxThreads>(mine, warps, block);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    params.tokens[blockIdx.y] = all.unsound != 0 || all.finite == 0 ? kUnsoundRow : all.largest.id;
  cooperative_groups::this_cluster().sync();  // others may still read this block's shared memory
}

}  // namespace

void argmax_sm90(const ArgmaxParams& params, Stream& stream) {
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  for (std::int64_t first = 0; first < params.logits.rows; first += kMostRows) {
    ArgmaxParams part = params;
    const std::int64_t left = params.logits.rows - first;
    part.logits.rows = left < kMostRows ? left : kMostRows;
    part.logits.data = static_cast<float*>(params.logits.data) + first * params.logits.row_stride;
    part.tokens = params.tokens + first;
    launch_sm90("argmax", argmax_rows,
                {.grid = dim3(kRowBlocks, static_cast<unsigned>(part.logits.rows)), .block = kArgmaxThreads}, stream,
                part);
  }
}

}  // namespace heddle
