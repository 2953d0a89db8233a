// Attention of the query heads of one KV head over some of its keys, by a block, as a part (o, m, l).
#pragma once

#include <cstdint>
#include <limits>

#include "fused/flash_decode/partial.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle::flash_decode {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// Keys [begin, end) of a sequence on this rank, and the query of a unit.
struct SplitOfKeys {
  PagedKv kv;
  const std::int32_t* pages;
  const float* q;  // [unit.heads, head_dim]
  int kv_head, begin, end;
  float scale;

  __device__ std::int64_t offset(int token) const {
    return static_cast<std::int64_t>(kv.offset(pages[token / kv.page_size], kv_head, token % kv.page_size));
  }
};

__device__ inline float warp_max(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}

// kHeads query heads at a time, head_dim 32 * kPerLane. A warp takes 32 keys: a lane scores one, then holds kPerLane
// columns of o.
template <class T, int kHeads, int kPerLane>
struct FastSplit {
  static constexpr int kHeadDim = 32 * kPerLane, kHeadsAtOnce = kHeads;
  struct Shared {
    float q[kHeads][kHeadDim];
    float o[kWarps][kHeads][kHeadDim];
    float m[kWarps][kHeads], l[kWarps][kHeads];
  };

  // Heads [first_head, first_head + kHeads) that exist, to `part` of the unit.
  static __device__ void attend(Shared& shared, const DecodeUnit& unit, const SplitOfKeys& keys, int first_head,
                                float* part) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int heads = min(kHeads, unit.heads - first_head);
    __syncthreads();  // the last item has been stored
    for (int i = thread; i < kHeads * kHeadDim; i += kThreads)
      shared.q[i / kHeadDim][i % kHeadDim] =
          i / kHeadDim < heads ? keys.q[(first_head + i / kHeadDim) * kHeadDim + i % kHeadDim] : 0.0f;
    __syncthreads();
    float o[kHeads][kPerLane] = {}, m[kHeads], l[kHeads] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) m[h] = -std::numeric_limits<float>::infinity();
    const auto* const all_keys = static_cast<const T*>(keys.kv.keys);
    const auto* const all_values = static_cast<const T*>(keys.kv.values);
    for (int first = keys.begin + warp * 32; first < keys.end; first += kWarps * 32) {
      const int count = min(32, keys.end - first);
      const long long at = keys.offset(first + min(lane, count - 1));
      float scores[kHeads] = {};
#pragma unroll 4
      for (int d = 0; d < kHeadDim; d += kPackElements) {
        const Pack key = load_pack(all_keys + at + d);
#pragma unroll
        for (int h = 0; h < kHeads; ++h)
#pragma unroll
          for (int i = 0; i < kPackElements; ++i) scores[h] = fmaf(shared.q[h][d + i], key.values[i], scores[h]);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float score = lane < count ? scores[h] * keys.scale : -std::numeric_limits<float>::infinity();
        const float most = fmaxf(m[h], warp_max(score));
        const float shrink = __expf(m[h] - most);
        m[h] = most;
        scores[h] = __expf(score - most);
        l[h] = l[h] * shrink + scores[h];
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) o[h][i] *= shrink;
      }
#pragma unroll 4
      for (int j = 0; j < count; ++j) {
        const T* const value = all_values + __shfl_sync(~0u, at, j) + lane * kPerLane;
        float v[kPerLane];
        load_some(value, v);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          const float weight = __shfl_sync(~0u, scores[h], j);
#pragma unroll
          for (int i = 0; i < kPerLane; ++i) o[h][i] = fmaf(weight, v[i], o[h][i]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float sum = warp_sum(l[h]);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) shared.o[warp][h][lane * kPerLane + i] = o[h][i];
      if (lane == 0) shared.m[warp][h] = m[h], shared.l[warp][h] = sum;
    }
    __syncthreads();
    for (int i = thread; i < heads * kHeadDim; i += kThreads) {
      const int h = i / kHeadDim, d = i % kHeadDim;
      float most = -std::numeric_limits<float>::infinity(), sum = 0, of_o = 0;
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.m[w][h]);
      for (int w = 0; w < kWarps; ++w) {
        if (shared.l[w][h] == 0) continue;
        const float weight = __expf(shared.m[w][h] - most);
        sum += shared.l[w][h] * weight;
        of_o += shared.o[w][h][d] * weight;
      }
      unit.o(part, first_head + h)[d] = of_o;
      if (d == 0) unit.m(part, first_head + h) = most, unit.l(part, first_head + h) = sum;
    }
  }

 private:
  // kPerLane neighbouring elements, aligned to their size.
  static __device__ void load_some(const T* from, float (&values)[kPerLane]) {
    struct alignas(sizeof(T) * kPerLane < 16 ? sizeof(T) * kPerLane : 16) Some {
      T elements[kPerLane];
    };
    const Some some = *reinterpret_cast<const Some*>(from);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) values[i] = sm90::widened(some.elements[i]);
  }
};

// Any head_dim up to 32 * kMostPerLane and any alignment: a warp has a head, one key after the other.
template <class T>
struct PlainSplit {
  static constexpr int kHeadsAtOnce = kWarps, kMostPerLane = 32;
  struct Shared {};

  static __device__ void attend(Shared&, const DecodeUnit& unit, const SplitOfKeys& keys, int first_head, float* part) {
    const int head = first_head + static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (head >= unit.heads) return;
    const float* const q = keys.q + head * unit.head_dim;
    float o[kMostPerLane] = {}, m = -std::numeric_limits<float>::infinity(), l = 0;
    for (int token = keys.begin; token < keys.end; ++token) {
      const std::int64_t at = keys.offset(token);
      const T* const key = static_cast<const T*>(keys.kv.keys) + at;
      const T* const value = static_cast<const T*>(keys.kv.values) + at;
      float score = 0;
      for (int d = lane; d < unit.head_dim; d += 32) score = fmaf(q[d], sm90::widened(key[d]), score);
      score = warp_sum(score) * keys.scale;
      const float most = fmaxf(m, score), shrink = __expf(m - most), weight = __expf(score - most);
      m = most;
      l = l * shrink + weight;
#pragma unroll
      for (int i = 0; i < kMostPerLane; ++i)
        if (lane + 32 * i < unit.head_dim) o[i] = o[i] * shrink + weight * sm90::widened(value[lane + 32 * i]);
    }
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i)
      if (lane + 32 * i < unit.head_dim) unit.o(part, head)[lane + 32 * i] = o[i];
    if (lane == 0) unit.m(part, head) = m, unit.l(part, head) = l;
  }
};

}  // namespace heddle::flash_decode
