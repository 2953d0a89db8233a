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

// A thread takes every kFewRowsThreads-th pack in order; then lanes are added, then warps.
template <class T>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows(const __grid_constant__ LinearOperands<T, T, float> op) {
  __shared__ float sums[kFewRowsWarps][kLinearSmallRows];
  let_later_kernels_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const auto first_of = [&](int p) { return std::int64_t{p * kFewRowsThreads + thread} * kPackElements; };
  for (std::int64_t row = blockIdx.x; row < op.out_features; row += gridDim.x) {
    RawPack<T> raw[kRowPacks];
#pragma unroll
    for (int p = 0; p < kRowPacks; ++p)
      if (first_of(p) < op.in_features) raw[p] = load_raw(op.weight + row * op.in_features + first_of(p));
    wait_for_earlier_kernels();
    for (int token = 0; token < op.num_tokens; ++token) {
      float sum = 0;
#pragma unroll
      for (int p = 0; p < kRowPacks; ++p) {
        if (first_of(p) >= op.in_features) continue;
        const Pack weights = unpack(raw[p]), values = load_pack(op.x + token * op.x_stride + first_of(p));
#pragma unroll
        for (int e = 0; e < kPackElements; ++e) sum = fmaf(values.values[e], weights.values[e], sum);
      }
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (lane == 0) sums[warp][token] = sum;
    }
    __syncthreads();
    if (thread < op.num_tokens) {
      float sum = sums[0][thread];
      for (int w = 1; w < kFewRowsWarps; ++w) sum += sums[w][thread];
      op.y[thread * op.y_stride + row] = sum + (op.bias == nullptr ? 0 : op.bias[row]);
    }
    __syncthreads();  // the next row's sums take the same places
  }
}

}  // namespace

bool is_for_few_rows(const LinearParams& params) {
  const DType dtype = params.weight.dtype;
  return params.role == LinearRole::alone && params.x.rows <= kLinearSmallRows &&
         params.weight.out_features <= kMostRows && params.weight.in_features <= kMostFeatures && size_of(dtype) == 2 &&
         params.x.dtype == dtype && params.y.dtype == DType::float32 && takes_packs(params.x) &&
         is_aligned(params.weight.row(0));
}

void linear_few_rows(const LinearParams& params, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() {
    launch_sm90("linear", few_rows<T>,
                {.grid = dim3(static_cast<unsigned>(params.weight.out_features)),
                 .block = kFewRowsThreads,
                 .fit = GridFit::trimmed},
                lane, operands_of<T, T, float>(params));
  });
}

}  // namespace heddle
