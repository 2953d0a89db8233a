// A warp takes a row of W, which is one head's, and kPlainTokens tokens (linear_sm90_packs.cuh).
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "kernels/linear/head_linear_sm90.h"
#include "kernels/linear/linear_sm90_packs.cuh"

namespace heddle {
namespace {

template <RowLoads kLoads, class T, class W>
__global__ void __launch_bounds__(kPlainWarps * 32) heads_plain(const __grid_constant__ HeadLinearParams params) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const std::int64_t out = params.out_features(), in = params.weight.in_features;
  const auto* weight = static_cast<const W*>(params.weight.blocks[0].data);
  const int num_tokens = static_cast<int>(params.x.rows);
  for (int first = static_cast<int>(blockIdx.y) * kPlainTokens; first < num_tokens;
       first += static_cast<int>(gridDim.y) * kPlainTokens)
    for (std::int64_t row = std::int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / 32; row < params.weight.out_features;
         row += std::int64_t{gridDim.x} * kPlainWarps) {
      const std::int64_t head = row / out;
      const LinearOperands<T, W, T> of_head{.x = static_cast<const T*>(params.x.data) + head * params.x_stride,
                                            .weight = weight + head * out * in,
                                            .bias = nullptr,
                                            .y = static_cast<T*>(params.y.data) + head * params.y_stride,
                                            .x_stride = params.x.row_stride,
                                            .y_stride = params.y.row_stride,
                                            .in_features = in,
                                            .out_features = out,
                                            .num_tokens = num_tokens};
      multiply_row_with<kLoads>(of_head, row % out, first);
    }
}

}  // namespace

void head_linear_sm90(const HeadLinearParams& params, const Lane& lane) {
  require(params.x.dtype == params.y.dtype, "head_linear: x is {}, y {}: expected the same on a GPU",
          name_of(params.x.dtype), name_of(params.y.dtype));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(params.weight.out_features, kPlainWarps)),
                   static_cast<unsigned>(ceil_div<std::int64_t>(params.x.rows, kPlainTokens))),
      .block = kPlainWarps * 32,
      .fit = GridFit::trimmed};
  const Weight& weight = params.weight;
  const bool packs = params.x.dtype == weight.dtype && size_of(weight.dtype) == 2 &&
                     weight.in_features % kPackElements == 0 && params.x_stride % kPackElements == 0 &&
                     takes_packs(params.x.data, params.x.row_stride, params.x.dtype) &&
                     is_aligned(weight.blocks[0].data);
  if (packs)
    return with_16_bit_element(weight.dtype, [&]<class T>() {
      launch_sm90("head_linear", heads_plain<RowLoads::packs, T, T>, shape, lane, params);
    });
  with_element(params.x.dtype, [&]<class T>() {
    with_element(weight.dtype, [&]<class W>() {
      launch_sm90("head_linear", heads_plain<RowLoads::elements, T, W>, shape, lane, params);
    });
  });
}

}  // namespace heddle
