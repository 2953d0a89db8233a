#include "kernels/linear_sm90.h"

#include <cstdint>

#include "base/error.h"
#include "kernels/linear_sm90_large.h"
#include "kernels/linear_sm90_plain.cuh"
#include "kernels/linear_sm90_stream.h"

namespace heddle {
namespace {

template <class F>
void with_type(DType dtype, F&& call) {
  switch (dtype) {
    case DType::float32:
      return call(float{});
    case DType::bfloat16:
      return call(__nv_bfloat16{});
    case DType::float16:
      return call(__half{});
  }
}

void multiply_plainly(const LinearParams& params, Stream& stream) {
  const dim3 grid(static_cast<unsigned>((params.weight.out_features + kPlainWarps - 1) / kPlainWarps),
                  static_cast<unsigned>((params.x.rows + kPlainTokens - 1) / kPlainTokens));
  with_type(params.x.dtype, [&]<class XType>(XType) {
    with_type(params.weight.dtype, [&]<class WType>(WType) {
      with_type(params.y.dtype, [&]<class YType>(YType) {
        launch_sm90("linear", linear_plain<XType, WType, YType>, {.grid = grid, .block = dim3(kPlainWarps * 32)},
                    stream, operands_of<XType, WType, YType>(params));
      });
    });
  });
}

template <class YType>
__global__ void round_bias(const float* bias, YType* rounded, std::int64_t count) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) store_rounded(rounded + i, bias[i]);
}

// cuBLASLt wants the bias in the dtype of y; where that is narrower, its rounded copy takes the front of the workspace.
LargeProduct with_bias_of_y(const LinearParams& params, Stream& stream) {
  LargeProduct product{params, params.weight.bias, params.workspace, params.workspace_bytes};
  if (product.bias == nullptr || params.y.dtype == DType::float32) return product;
  const std::int64_t count = params.weight.out_features;
  const std::size_t taken = (static_cast<std::size_t>(count) * size_of(params.y.dtype) + 255) / 256 * 256;
  require(taken <= params.workspace_bytes, "linear: the workspace of {} bytes does not hold a bias of {} elements",
          params.workspace_bytes, count);
  with_type(params.y.dtype, [&]<class YType>(YType) {
    constexpr unsigned kThreads = 256;
    launch_sm90("linear", round_bias<YType>,
                {.grid = dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), .block = dim3(kThreads)},
                stream, params.weight.bias, static_cast<YType*>(params.workspace), count);
  });
  product.bias = params.workspace;
  product.workspace = static_cast<std::byte*>(params.workspace) + taken;
  product.workspace_bytes -= taken;
  return product;
}

bool is_large(const LinearParams& params) {
  return params.x.rows > kLinearSmallRows && is_for_cublas_lt(params);
}

}  // namespace

void linear_sm90(const LinearParams& params, Stream& stream) {
  if (is_for_stream(params)) return linear_stream(params, stream);
  if (is_large(params)) return linear_large(with_bias_of_y(params, stream), stream);
  multiply_plainly(params, stream);
}

void tune_linear_sm90(const LinearParams& params, Stream& stream) {
  if (!is_for_stream(params) && is_large(params)) tune_linear_large(with_bias_of_y(params, stream), stream);
}

}  // namespace heddle
