#include "kernels/linear/linear_sm90.h"

#include <cstdint>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "kernels/linear/linear_few_rows_sm90.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/linear/linear_sm90_large.h"
#include "kernels/linear/linear_sm90_plain.cuh"
#include "kernels/linear/linear_sm90_stream.h"

namespace heddle {
namespace {

void multiply_plainly(const LinearParams& params, const Lane& lane) {
  const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(params.weight.out_features, kPlainWarps)),
                  static_cast<unsigned>(ceil_div<std::int64_t>(params.x.rows, kPlainTokens)));
  with_element(params.x.dtype, [&]<class X>() {
    with_element(params.weight.dtype, [&]<class W>() {
      with_element(params.y.dtype, [&]<class Y>() {
        launch_sm90("linear", linear_plain<X, W, Y>,
                    {.grid = grid, .block = dim3(kPlainWarps * 32), .fit = GridFit::trimmed}, lane,
                    operands_of<X, W, Y>(params));
      });
    });
  });
}

__device__ std::int64_t first_of_grid() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::int64_t threads_of_grid() {
  return std::int64_t{gridDim.x} * blockDim.x;
}

// y = sums + bias, rounded once.
template <class YType>
__global__ void add_bias(const float* sums, const float* bias, YType* y, std::int64_t y_stride, std::int64_t columns,
                         std::int64_t count) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (std::int64_t i = first_of_grid(); i < count; i += threads_of_grid()) {
    const std::int64_t row = i / columns, column = i % columns;
    y[row * y_stride + column] = sm90::rounded<YType>(sums[i] + bias[column]);
  }
}

// One thread per element, or per several on a lane of few SMs.
constexpr unsigned kThreads = 256;
LaunchShape shape_for(std::int64_t count) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(count, kThreads))),
          .block = dim3(kThreads),
          .fit = GridFit::trimmed};
}

template <class YType>
__global__ void round_bias(const float* bias, YType* rounded, std::int64_t count) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (std::int64_t i = first_of_grid(); i < count; i += threads_of_grid()) rounded[i] = sm90::rounded<YType>(bias[i]);
}

// cuBLASLt adds a bias to its float32 sums only if it has y's dtype. With operands whose rows it cannot load 16 bytes
// at a time, it was observed to round the sums before it adds the bias.
bool adds_bias_exactly(const LinearParams& params) {
  if (params.weight.bias == nullptr || params.y.dtype == DType::float32) return true;
  const std::int64_t elements = 16 / static_cast<std::int64_t>(size_of(params.weight.dtype));
  return params.weight.bias_dtype == params.y.dtype && is_aligned(params.x.data) && is_aligned(params.y.data) &&
         params.weight.in_features % elements == 0 && params.weight.out_features % elements == 0 &&
         params.x.row_stride % elements == 0 && params.y.row_stride % elements == 0;
}

// The bias in y's dtype, which represents it exactly. A narrower copy takes the front of the workspace.
LargeGemm with_bias_of_y(const LinearParams& params, const Lane& lane) {
  LargeGemm gemm{params, params.weight.bias, lane.workspace};
  if (gemm.bias == nullptr || params.y.dtype == DType::float32) return gemm;
  const std::int64_t count = params.weight.out_features;
  const std::size_t taken = (static_cast<std::size_t>(count) * size_of(params.y.dtype) + 255) / 256 * 256;
  const Workspace all = lane.workspace;
  require(taken <= all.size_bytes, "linear: the workspace of {} bytes does not hold a bias of {} elements",
          all.size_bytes, count);
  with_element(params.y.dtype, [&]<class Y>() {
    launch_sm90("linear", round_bias<Y>, shape_for(count), lane, params.weight.bias, static_cast<Y*>(all.data), count);
  });
  gemm.bias = all.data;
  gemm.workspace = {static_cast<std::byte*>(all.data) + taken, all.size_bytes - taken};
  return gemm;
}

// For a bias that y's dtype does not represent: computes float32 sums of as many tokens as fit half the workspace, then
// adds the bias.
void multiply_and_add_bias(const LinearParams& params, const Lane& lane) {
  const std::int64_t columns = params.weight.out_features, row_bytes = columns * std::int64_t{sizeof(float)};
  const Workspace all = lane.workspace;
  const auto sums_bytes = static_cast<std::int64_t>(all.size_bytes / 2 / 256 * 256);
  require(row_bytes <= sums_bytes, "linear: the workspace of {} bytes does not hold float32 sums of {} features",
          all.size_bytes, columns);
  const std::int64_t rounds = ceil_div(params.x.rows, sums_bytes / row_bytes);
  auto* const sums = static_cast<float*>(all.data);
  LinearParams part = params;
  part.weight.bias = nullptr;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t first = params.x.rows * round / rounds, end = params.x.rows * (round + 1) / rounds;
    part.x.data = static_cast<std::byte*>(params.x.data) +
                  static_cast<std::size_t>(first * params.x.row_stride) * size_of(params.x.dtype);
    part.x.rows = end - first;
    part.y = {sums, end - first, columns, columns, DType::float32};
    linear_large({.params = part,
                  .bias = nullptr,
                  .workspace = {static_cast<std::byte*>(all.data) + sums_bytes,
                                all.size_bytes - static_cast<std::size_t>(sums_bytes)}},
                 lane);
    const std::int64_t count = (end - first) * columns;
    with_element(params.y.dtype, [&]<class Y>() {
      launch_sm90("linear", add_bias<Y>, shape_for(count), lane, sums, params.weight.bias,
                  static_cast<Y*>(params.y.data) + first * params.y.row_stride, params.y.row_stride, columns, count);
    });
  }
}

bool is_large(const LinearParams& params) {
  return params.x.rows > kLinearSmallRows && is_for_cublas_lt(params);
}

}  // namespace

void linear_sm90(const LinearParams& params, const Lane& lane) {
  if (is_for_few_rows(params)) return linear_few_rows(params, lane);
  if (is_for_stream(params)) return linear_stream(params, lane);
  if (is_for_batch(params, lane)) return linear_batch(params, lane);
  if (!is_large(params)) return multiply_plainly(params, lane);
  linear_cublas_lt(params, lane);
}

void linear_cublas_lt(const LinearParams& params, const Lane& lane) {
  if (!adds_bias_exactly(params)) return multiply_and_add_bias(params, lane);
  linear_large(with_bias_of_y(params, lane), lane);
}

}  // namespace heddle
