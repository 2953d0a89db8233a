#include "kernels/linear_sm90.h"

#include <cstdint>

#include "kernels/linear_sm90_plain.cuh"

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

template <class XType, class WType, class YType>
LinearOperands<XType, WType, YType> operands_of(const LinearParams& params) {
  return {.x = static_cast<const XType*>(params.x.data),
          .weight = static_cast<const WType*>(params.weight.row(0)),
          .bias = params.weight.bias,
          .y = static_cast<YType*>(params.y.data),
          .x_stride = params.x.row_stride,
          .y_stride = params.y.row_stride,
          .in_features = params.weight.in_features,
          .out_features = params.weight.out_features,
          .num_tokens = static_cast<int>(params.x.rows)};
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

}  // namespace

void linear_sm90(const LinearParams& params, Stream& stream) {
  multiply_plainly(params, stream);
}

void tune_linear_sm90(const LinearParams&, Stream&) {}

}  // namespace heddle
