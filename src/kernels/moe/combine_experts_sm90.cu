// A thread takes an element of a token and goes through its experts in order.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/moe/combine_experts_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kCombineThreads = 256;

__global__ void __launch_bounds__(kCombineThreads) combine_rows(const __grid_constant__ CombineExpertsParams params) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (std::int64_t token = blockIdx.x; token < params.y.rows; token += gridDim.x)
    for (std::int64_t i = std::int64_t{blockIdx.y} * kCombineThreads + threadIdx.x; i < params.y.columns;
         i += std::int64_t{gridDim.y} * kCombineThreads) {
      float sum = params.shared.data == nullptr
                      ? 0
                      : load_element(params.shared.data, token * params.shared.row_stride + i, params.shared.dtype);
      for (int k = 0; k < params.top_k; ++k) {
        const std::int64_t row = params.row_of[token * params.top_k + k];
        sum += params.weights[token * params.top_k + k] *
               load_element(params.x.data, row * params.x.row_stride + i, params.x.dtype);
      }
      store_element(params.y.data, token * params.y.row_stride + i, params.y.dtype, sum);
    }
}

}  // namespace

void combine_experts_sm90(const CombineExpertsParams& params, const Lane& lane) {
  launch_sm90("combine_experts", combine_rows,
              {.grid = dim3(static_cast<unsigned>(params.y.rows),
                            static_cast<unsigned>(ceil_div<std::int64_t>(params.y.columns, kCombineThreads))),
               .block = kCombineThreads,
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace heddle
