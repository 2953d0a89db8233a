// A block takes a token, or some of its heads: q's, k's, then v's. What depends on the step's arrays only, the cosines
// and sines and the slot in the cache, is computed before the wait for the kernel ahead if the arrays are in place.
// What remains is to load, rotate and store.
#include <type_traits>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/kv_write_sm90.cuh"
#include "kernels/attention/rope_kv_write_sm90.h"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kRopeKvWriteThreads = 128;
constexpr int kRotatedAtOnce = 3;  // heads per thread

// The elements after rounding to T.
template <class T>
__device__ Pack stored_as(const Pack& pack) {
  RawPack<T> raw;
  store_pack(reinterpret_cast<T*>(raw.words), pack);
  return unpack(raw);
}

// `lanes` threads take a head, each the eight pairs that begin at 8 * lane; half = 8 * lanes.
template <class T, class Cache, Passes kPasses>
__global__ void __launch_bounds__(kRopeKvWriteThreads)
    rope_kv_write_packs(const __grid_constant__ RopeKvWriteParams params, const int lanes) {
  extern __shared__ __align__(16) float rotations[];  // cosines, then sines
  __shared__ std::int64_t slot;
  let_later_kernels_start();
  if (params.older_keys == OlderKeys::in_flight) wait_for_earlier_kernels();
  const PagedKv& kv = params.kv;
  const int thread = static_cast<int>(threadIdx.x), half = kv.head_dim / 2;
  int token = static_cast<int>(blockIdx.x);
  while (true) {
    for (int i = thread; i < half; i += kRopeKvWriteThreads) {
      const Rotation rotation = rotation_of(params.positions[token], params.inv_freq[i], params.scale);
      rotations[i] = rotation.cosine;
      rotations[half + i] = rotation.sine;
    }
    if (thread >= kRopeKvWriteThreads - 32) {
      const std::int64_t found = slot_of(params.sequences, kv, token);
      if (thread % 32 == 0) slot = found;
    }
    __syncthreads();
    const int pair = thread % lanes * kPackElements;
    const int heads_of_block = kRopeKvWriteThreads / lanes,
              heads_at_once = heads_of_block * static_cast<int>(gridDim.y);
    const int q_heads = static_cast<int>(params.q.columns / kv.head_dim), rotated_heads = q_heads + kv.num_kv_heads;
    // Threads beyond the last whole head of a block are idle.
    const int heads = thread < heads_of_block * lanes ? rotated_heads + kv.num_kv_heads : 0;
    const Pack cosine = load_pack(rotations + pair), sine = load_pack(rotations + half + pair);
    const auto place = [&](int head) {
      if (head < q_heads) return element<T>(params.q, token, std::int64_t{head} * kv.head_dim + pair);
      const bool is_key = head < rotated_heads;
      return element<T>(is_key ? params.k : params.v, token,
                        std::int64_t{head - (is_key ? q_heads : rotated_heads)} * kv.head_dim + pair);
    };
    const auto place_in_cache = [&](int head) {
      const bool is_key = head < rotated_heads;
      return static_cast<Cache*>(is_key ? kv.keys : kv.values) + slot +
             std::int64_t{head - (is_key ? q_heads : rotated_heads)} * kv.page_size * kv.head_dim + pair;
    };
    wait_for_earlier_kernels();

    for (int first = static_cast<int>(blockIdx.y) * heads_of_block + thread / lanes; first < heads;
         first += kRotatedAtOnce * heads_at_once) {
      RawPack<T> low[kRotatedAtOnce], high[kRotatedAtOnce];
#pragma unroll
      for (int j = 0; j < kRotatedAtOnce; ++j)
        if (first + j * heads_at_once < heads) {
          const T* at = place(first + j * heads_at_once);
          low[j] = load_raw(at);
          high[j] = load_raw(at + half);
        }
#pragma unroll
      for (int j = 0; j < kRotatedAtOnce; ++j) {
        const int head = first + j * heads_at_once;
        if (head >= heads) break;
        Pack a = unpack(low[j]), b = unpack(high[j]);
        if (head < rotated_heads)
#pragma unroll
          for (int i = 0; i < kPackElements; ++i)
            rotate_pair({cosine.values[i], sine.values[i]}, a.values[i], b.values[i]);
        if (head < q_heads) {
          store_pack(place(head), a);
          store_pack(place(head) + half, b);
        } else if (slot != kNoSlot) {
          store_pack(place_in_cache(head), stored_as<T>(a));
          store_pack(place_in_cache(head) + half, stored_as<T>(b));
        }
      }
    }
    token += static_cast<int>(gridDim.x);
    if (kPasses == Passes::one || token >= params.q.rows) return;
    __syncthreads();  // before the next token's rotations and slot
  }
}

}  // namespace

bool rope_kv_write_takes(const RopeKvWriteParams& params) {
  const PagedKv& kv = params.kv;
  const int lanes = kv.head_dim / 2 / kPackElements;
  const bool both_narrow = params.q.dtype != DType::float32 && kv.dtype != DType::float32;
  return takes_packs(params.q) && takes_packs(params.k) && takes_packs(params.v) &&
         rows_are_aligned(kv.keys, kv.head_dim, kv.dtype) && rows_are_aligned(kv.values, kv.head_dim, kv.dtype) &&
         kv.head_dim % (2 * kPackElements) == 0 && lanes <= kRopeKvWriteThreads &&
         !(both_narrow && params.q.dtype != kv.dtype);
}

void rope_kv_write_sm90(const RopeKvWriteParams& params, const Lane& lane) {
  // Few tokens are spread over blocks, each with its own cosines; of many tokens a block takes all heads with one set.
  constexpr std::int64_t kManyTokens = 256;
  const int lanes = params.kv.head_dim / 2 / kPackElements, heads_of_block = kRopeKvWriteThreads / lanes;
  const auto heads = static_cast<int>(params.q.columns / params.kv.head_dim) + 2 * params.kv.num_kv_heads;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.q.rows)),
                    .block = kRopeKvWriteThreads,
                    .shared_bytes = static_cast<std::size_t>(params.kv.head_dim) * sizeof(float),
                    .fit = GridFit::trimmed};
  if (params.q.rows < kManyTokens) shape.grid.y = static_cast<unsigned>(ceil_div(heads, heads_of_block));
  with_element(params.q.dtype, [&]<class T>() {
    with_element(params.kv.dtype, [&]<class Cache>() {
      if constexpr (std::is_same_v<T, Cache> || std::is_same_v<T, float> || std::is_same_v<Cache, float>)
        launch_sm90("rope_kv_write",
                    passes_on(lane) == Passes::one ? rope_kv_write_packs<T, Cache, Passes::one>
                                                   : rope_kv_write_packs<T, Cache, Passes::many>,
                    shape, lane, params, lanes);
    });
  });
}

}  // namespace heddle
