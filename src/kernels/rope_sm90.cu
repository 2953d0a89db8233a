// A block takes a token: its first threads compute the cosines and sines of its pairs, once for all heads, then all
// turn pairs. Every step is rounded as on the CPU: products and sums are not fused.
#include "kernels/elements_sm90.cuh"
#include "kernels/launch_sm90.cuh"
#include "kernels/rope_sm90.h"

namespace heddle {
namespace {

constexpr int kRopeThreads = 256;

struct Turn {
  float cosine, sine;
};

__device__ Turn turn_of(const RopeParams& params, int position, int pair) {
  const double angle = __fmul_rn(static_cast<float>(position), params.inv_freq[pair]);
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  return {__fmul_rn(static_cast<float>(cosine), params.scale), __fmul_rn(static_cast<float>(sine), params.scale)};
}

__device__ void turn_pair(const Turn& turn, float& low, float& high) {
  const float a = low, b = high;
  low = __fsub_rn(__fmul_rn(a, turn.cosine), __fmul_rn(b, turn.sine));
  high = __fadd_rn(__fmul_rn(b, turn.cosine), __fmul_rn(a, turn.sine));
}

template <class T>
__global__ void __launch_bounds__(kRopeThreads) rope_packs(const __grid_constant__ RopeParams params) {
  extern __shared__ Turn turns[];
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int token = static_cast<int>(blockIdx.x), half = params.head_dim / 2, packs_of_half = half / kPackElements;
  for (int pair = threadIdx.x; pair < half; pair += kRopeThreads)
    turns[pair] = turn_of(params, params.positions[token], pair);
  __syncthreads();
  const int q_packs = static_cast<int>(params.q.columns / (2 * kPackElements));
  const int packs = q_packs + static_cast<int>(params.k.columns / (2 * kPackElements));
  for (int i = blockIdx.y * kRopeThreads + threadIdx.x; i < packs; i += gridDim.y * kRopeThreads) {
    const bool is_query = i < q_packs;
    const int pack = is_query ? i : i - q_packs, head = pack / packs_of_half;
    const int pair = (pack - head * packs_of_half) * kPackElements;
    T* at = element<T>(is_query ? params.q : params.k, token, std::int64_t{head} * params.head_dim + pair);
    Pack low = load_pack(at), high = load_pack(at + half);
#pragma unroll
    for (int j = 0; j < kPackElements; ++j) turn_pair(turns[pair + j], low.values[j], high.values[j]);
    store_pack(at, low);
    store_pack(at + half, high);
  }
}

__global__ void __launch_bounds__(kRopeThreads) rope_elements(const __grid_constant__ RopeParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int token = static_cast<int>(blockIdx.x), half = params.head_dim / 2;
  for (int pair = threadIdx.x; pair < half; pair += kRopeThreads) {
    const Turn turn = turn_of(params, params.positions[token], pair);
    for (const Tensor* x : {&params.q, &params.k}) {
      for (std::int64_t head_start = 0; head_start < x->columns; head_start += params.head_dim) {
        const std::int64_t at = token * x->row_stride + head_start + pair;
        float low = load_element(x->data, at, x->dtype), high = load_element(x->data, at + half, x->dtype);
        turn_pair(turn, low, high);
        store_element(x->data, at, x->dtype, low);
        store_element(x->data, at + half, x->dtype, high);
      }
    }
  }
}

}  // namespace

void rope_sm90(const RopeParams& params, Stream& stream) {
  const bool packs = takes_packs(params.q) && takes_packs(params.k) && params.head_dim % (2 * kPackElements) == 0 &&
                     params.head_dim <= 8192;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.q.rows)), .block = kRopeThreads};
  if (!packs) return launch_sm90("rope", rope_elements, shape, stream, params);
  shape.shared_bytes = static_cast<std::size_t>(params.head_dim / 2) * sizeof(Turn);
  with_type(params.q.dtype, [&](auto type) { launch_sm90("rope", rope_packs<decltype(type)>, shape, stream, params); });
}

}  // namespace heddle
