// A block has a row of W in registers before it waits for x. It holds no shared memory to speak of, so that the GEMM behind
// it fills its ring meanwhile: the small-M GEMM (linear_sm90_stream.cuh) would hold half of each SM. A whole device has a
// block for each row; on a part of it blocks take several, with the same bits.
#include "kernels/linear/linear_few_rows_sm90.h"

#include <cstdint>

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "kernels/linear/linear_sm90_plain.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kFewRowsWarps = 8, kFewRowsThreads = 32 * kFewRowsWarps;
constexpr int kRowPacks = 4;  // of eight elements, that a thread has of the row
constexpr std::int64_t kMostRows = 512, kMostFeatures = std::int64_t{kRowPacks} * kFewRowsThreads * kPackElements;

// Adds each of a lane's sums over all lanes, pair by pair in the same order for every number of them. On return sums[0] is
// that of token lane / (32 / kTokens).
template <int kTokens>
__device__ void add_lanes(float (&sums)[kTokens], int lane) {
  int distance = 16;
#pragma unroll
  for (int left = kTokens / 2; left > 0; left /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;  // keeps the upper half of the tokens
#pragma unroll
    for (int t = 0; t < left; ++t) {
      const float mine = upper ? sums[t + left] : sums[t], others = upper ? sums[t] : sums[t + left];
      sums[t] = mine + __shfl_xor_sync(~0u, others, distance);
    }
  }
  for (; distance > 0; distance /= 2) sums[0] += __shfl_xor_sync(~0u, sums[0], distance);
}

// A thread takes every kFewRowsThreads-th pack in order; then lanes are added, then warps. What it loads of kTokens tokens
// is in flight together.
template <class T, int kTokens>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows(const __grid_constant__ LinearOperands<T, T, float> op) {
  __shared__ float sums[kFewRowsWarps][kTokens];
  let_later_kernels_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const auto first_of = [&](int p) { return std::int64_t{p * kFewRowsThreads + thread} * kPackElements; };
  for (std::int64_t row = blockIdx.x; row < op.out_features; row += gridDim.x) {
    RawPack<T> raw[kRowPacks];
#pragma unroll
    for (int p = 0; p < kRowPacks; ++p)
      if (first_of(p) < op.in_features) raw[p] = load_raw(op.weight + row * op.in_features + first_of(p));
    wait_for_earlier_kernels();
    float mine[kTokens] = {};
#pragma unroll
    for (int p = 0; p < kRowPacks; ++p) {
      if (first_of(p) >= op.in_features) break;
      RawPack<T> x[kTokens];
#pragma unroll
      for (int t = 0; t < kTokens; ++t)  // the last token's in place of those that do not exist
        x[t] = load_raw(op.x + min(t, op.num_tokens - 1) * op.x_stride + first_of(p));
      const Pack weights = unpack(raw[p]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const Pack values = unpack(x[t]);
#pragma unroll
        for (int e = 0; e < kPackElements; ++e) mine[t] = fmaf(values.values[e], weights.values[e], mine[t]);
      }
    }
    add_lanes(mine, lane);
    if (lane % (32 / kTokens) == 0) sums[warp][lane / (32 / kTokens)] = mine[0];
    __syncthreads();
    if (thread < op.num_tokens) {
      float sum = sums[0][thread];
      for (int w = 1; w < kFewRowsWarps; ++w) sum += sums[w][thread];
      op.y[thread * op.y_stride + row] = sum + (op.bias == nullptr ? 0 : op.bias[row]);
    }
    __syncthreads();  // the next row's sums take the same places
  }
}

template <class T, int kTokens>
void enqueue_few_rows(const LinearParams& params, const Lane& lane) {
  launch_sm90("linear", few_rows<T, kTokens>,
              {.grid = dim3(static_cast<unsigned>(params.weight.out_features)),
               .block = kFewRowsThreads,
               .fit = GridFit::trimmed},
              lane, operands_of<T, T, float>(params));
}

}  // namespace

bool is_for_few_rows(const LinearParams& params) {
  const DType dtype = params.weight.dtype;
  return params.role == LinearRole::alone && params.x.rows <= kLinearSmallRows &&
         params.weight.out_features <= kMostRows && params.weight.in_features <= kMostFeatures && size_of(dtype) == 2 &&
         params.x.dtype == dtype && params.y.dtype == DType::float32 && takes_packs(params.x) &&
         rows_are_aligned(params.weight);
}

void linear_few_rows(const LinearParams& params, const Lane& lane) {
  static_assert(kLinearSmallRows == 16);
  with_16_bit_element(params.weight.dtype, [&]<class T>() {
    if (params.x.rows == 1) return enqueue_few_rows<T, 1>(params, lane);
    if (params.x.rows <= 4) return enqueue_few_rows<T, 4>(params, lane);
    enqueue_few_rows<T, 16>(params, lane);
  });
}

}  // namespace heddle
