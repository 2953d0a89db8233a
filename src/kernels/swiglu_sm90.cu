// Element by element, a pack a thread.
#include "kernels/elements_sm90.cuh"
#include "kernels/launch_sm90.cuh"
#include "kernels/swiglu_sm90.h"

namespace heddle {
namespace {

constexpr int kSwigluThreads = 256;

// Overflow of exp, below -88.7, gives -0 as on the CPU.
__device__ float gated(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

template <class In, class Out>
__global__ void __launch_bounds__(kSwigluThreads) swiglu_packs(const __grid_constant__ SwigluParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const std::int64_t column = (std::int64_t{blockIdx.x} * kSwigluThreads + threadIdx.x) * kPackElements;
  if (column >= params.y.columns) return;
  for (std::int64_t row = blockIdx.y; row < params.y.rows; row += gridDim.y) {
    const In* gate_up = element<In>(params.gate_up, row, column);
    const Pack gate = load_pack(gate_up), up = load_pack(gate_up + params.y.columns);
    Pack y;
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) y.values[i] = gated(gate.values[i], up.values[i]);
    store_pack(element<Out>(params.y, row, column), y);
  }
}

__global__ void __launch_bounds__(kSwigluThreads) swiglu_elements(const __grid_constant__ SwigluParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const std::int64_t column = std::int64_t{blockIdx.x} * kSwigluThreads + threadIdx.x;
  if (column >= params.y.columns) return;
  const DType in = params.gate_up.dtype;
  for (std::int64_t row = blockIdx.y; row < params.y.rows; row += gridDim.y) {
    const std::int64_t gate = row * params.gate_up.row_stride + column;
    store_element(params.y.data, row * params.y.row_stride + column, params.y.dtype,
                  gated(load_element(params.gate_up.data, gate, in),
                        load_element(params.gate_up.data, gate + params.y.columns, in)));
  }
}

}  // namespace

void swiglu_sm90(const SwigluParams& params, Stream& stream) {
  const bool packs = takes_packs(params.gate_up) && takes_packs(params.y);
  const std::int64_t pieces = packs ? params.y.columns / kPackElements : params.y.columns;
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>((pieces + kSwigluThreads - 1) / kSwigluThreads),
                                       static_cast<unsigned>(params.y.rows < kMostRows ? params.y.rows : kMostRows)),
                          .block = kSwigluThreads};
  if (!packs) return launch_sm90("swiglu", swiglu_elements, shape, stream, params);
  with_type(params.gate_up.dtype, [&](auto in) {
    with_type(params.y.dtype, [&](auto out) {
      launch_sm90("swiglu", swiglu_packs<decltype(in), decltype(out)>, shape, stream, params);
    });
  });
}

}  // namespace heddle
