// A block takes a token, or some of its heads. Its first threads compute the cosines and sines of the token's pairs,
// once for all heads, while the first heads are loaded. A thread rotates the same pairs of head after head.
// Multiplications and additions are rounded one by one, as on the CPU.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/attention/rope_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kRopeThreads = 128;
constexpr int kHeadsAtOnce = 3;  // heads per thread

// `lanes` threads take a head, each the eight pairs that begin at 8 * lane; half = 8 * lanes.
template <class T>
__global__ void __launch_bounds__(kRopeThreads) rope_packs(const __grid_constant__ RopeParams params, const int lanes) {
  extern __shared__ __align__(16) float rotations[];  // cosines, then sines
  let_later_kernels_start();
  const int half = params.head_dim / 2;
  int token = static_cast<int>(blockIdx.x);
  const int pair = static_cast<int>(threadIdx.x) % lanes * kPackElements;
  const int heads_of_block = kRopeThreads / lanes, heads_at_once = heads_of_block * static_cast<int>(gridDim.y);
  const int q_heads = static_cast<int>(params.q.columns / params.head_dim);
  const int heads = q_heads + static_cast<int>(params.k.columns / params.head_dim);
  const bool takes_part = static_cast<int>(threadIdx.x) < heads_of_block * lanes;
  const auto place = [&](int head) {
    const bool is_query = head < q_heads;
    return element<T>(is_query ? params.q : params.k, token,
                      std::int64_t{is_query ? head : head - q_heads} * params.head_dim + pair);
  };
  wait_for_earlier_kernels();

  RawPack<T> low[kHeadsAtOnce], high[kHeadsAtOnce];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kHeadsAtOnce; ++j)
      if (takes_part && first + j * heads_at_once < heads) {
        const T* at = place(first + j * heads_at_once);
        low[j] = load_raw(at);
        high[j] = load_raw(at + half);
      }
  };
  while (true) {
    int head = static_cast<int>(blockIdx.y) * heads_of_block + static_cast<int>(threadIdx.x) / lanes;
    load(head);
    for (int i = threadIdx.x; i < half; i += kRopeThreads) {
      const Rotation rotation = rotation_of(params.positions[token], params.inv_freq[i], params.scale);
      rotations[i] = rotation.cosine;
      rotations[half + i] = rotation.sine;
    }
    __syncthreads();
    const Pack cosine = load_pack(rotations + pair), sine = load_pack(rotations + half + pair);
    while (takes_part && head < heads) {
#pragma unroll
      for (int j = 0; j < kHeadsAtOnce; ++j)
        if (head + j * heads_at_once < heads) {
          Pack a = unpack(low[j]), b = unpack(high[j]);
#pragma unroll
          for (int i = 0; i < kPackElements; ++i)
            rotate_pair({cosine.values[i], sine.values[i]}, a.values[i], b.values[i]);
          T* at = place(head + j * heads_at_once);
          store_pack(at, a);
          store_pack(at + half, b);
        }
      head += kHeadsAtOnce * heads_at_once;
      load(head);
    }
    token += static_cast<int>(gridDim.x);
    if (token >= params.q.rows) return;
    __syncthreads();  // before the next token's rotations
  }
}

__global__ void __launch_bounds__(kRopeThreads) rope_elements(const __grid_constant__ RopeParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int half = params.head_dim / 2;
  for (int token = static_cast<int>(blockIdx.x); token < params.q.rows; token += static_cast<int>(gridDim.x))
    for (int pair = threadIdx.x; pair < half; pair += kRopeThreads) {
      const Rotation rotation = rotation_of(params.positions[token], params.inv_freq[pair], params.scale);
      for (const Tensor* x : {&params.q, &params.k}) {
        for (std::int64_t head_start = 0; head_start < x->columns; head_start += params.head_dim) {
          const std::int64_t at = token * x->row_stride + head_start + pair;
          float low = load_element(x->data, at, x->dtype), high = load_element(x->data, at + half, x->dtype);
          rotate_pair(rotation, low, high);
          store_element(x->data, at, x->dtype, low);
          store_element(x->data, at + half, x->dtype, high);
        }
      }
    }
}

}  // namespace

void rope_sm90(const RopeParams& params, const Lane& lane) {
  const bool packs = takes_packs(params.q) && takes_packs(params.k) && params.head_dim % (2 * kPackElements) == 0 &&
                     params.head_dim / 2 / kPackElements <= kRopeThreads;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.q.rows)), .block = kRopeThreads, .fit = GridFit::trimmed};
  if (!packs) return launch_sm90("rope", rope_elements, shape, lane, params);
  // Few tokens are spread over blocks, each with its own cosines; of many tokens a block takes all heads with one set.
  constexpr std::int64_t kManyTokens = 256;
  const int lanes = params.head_dim / 2 / kPackElements;
  const std::int64_t heads = (params.q.columns + params.k.columns) / params.head_dim;
  if (params.q.rows < kManyTokens)
    shape.grid.y = static_cast<unsigned>(ceil_div<std::int64_t>(heads, kRopeThreads / lanes));
  shape.shared_bytes = static_cast<std::size_t>(params.head_dim) * sizeof(float);
  with_element(params.q.dtype, [&]<class T>() { launch_sm90("rope", rope_packs<T>, shape, lane, params, lanes); });
}

}  // namespace heddle
