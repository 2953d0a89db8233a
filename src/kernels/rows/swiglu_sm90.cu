// Element-wise, one pack per thread.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/rows/swiglu_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kMostSwigluThreads = 256, kFewSwigluThreads = 64;  // few: where rows are too few for all SMs

template <class In, class Out, Passes kPasses>
__global__ void __launch_bounds__(kMostSwigluThreads) swiglu_packs(const __grid_constant__ SwigluParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPackElements;
  while (column < params.y.columns) {
    for (std::int64_t row = blockIdx.y; row < params.y.rows; row += gridDim.y) {
      const In* gate_up = element<In>(params.gate_up, row, column);
      const Pack gate = load_pack(gate_up), up = load_pack(gate_up + params.y.columns);
      Pack y;
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) y.values[i] = gated(gate.values[i], up.values[i], Out{});
      store_pack(element<Out>(params.y, row, column), y);
    }
    if (kPasses == Passes::one) return;
    column += std::int64_t{gridDim.x} * blockDim.x * kPackElements;
  }
}

__global__ void __launch_bounds__(kMostSwigluThreads) swiglu_elements(const __grid_constant__ SwigluParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const DType in = params.gate_up.dtype;
  for (std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; column < params.y.columns;
       column += std::int64_t{gridDim.x} * blockDim.x)
    for (std::int64_t row = blockIdx.y; row < params.y.rows; row += gridDim.y) {
      const std::int64_t gate = row * params.gate_up.row_stride + column;
      const float x = load_element(params.gate_up.data, gate, in);
      const float up = load_element(params.gate_up.data, gate + params.y.columns, in);
      store_element(params.y.data, row * params.y.row_stride + column, params.y.dtype,
                    params.y.dtype == DType::float32 ? gated(x, up, float{}) : gated(x, up, bfloat16{}));
    }
}

}  // namespace

void swiglu_sm90(const SwigluParams& params, const Lane& lane) {
  const bool packs = takes_packs(params.gate_up) && takes_packs(params.y);
  const std::int64_t pieces = packs ? params.y.columns / kPackElements : params.y.columns;
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  constexpr std::int64_t kManyPieces = 256 * 256;
  const int threads = pieces * params.y.rows < kManyPieces ? kFewSwigluThreads : kMostSwigluThreads;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(pieces, threads)),
                                       static_cast<unsigned>(params.y.rows < kMostRows ? params.y.rows : kMostRows)),
                          .block = dim3(static_cast<unsigned>(threads)),
                          .fit = GridFit::trimmed};
  if (!packs) return launch_sm90("swiglu", swiglu_elements, shape, lane, params);
  with_element(params.gate_up.dtype, [&]<class In>() {
    with_element(params.y.dtype, [&]<class Out>() {
      launch_sm90(
          "swiglu",
          passes_on(lane) == Passes::one ? swiglu_packs<In, Out, Passes::one> : swiglu_packs<In, Out, Passes::many>,
          shape, lane, params);
    });
  });
}

}  // namespace heddle
