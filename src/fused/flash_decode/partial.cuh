// Partial attention of one query token over some of its keys, and how such parts merge, over a Group. Both compilers read
// it.
//
// The part of a query head is (o, m, l) in float32: m the largest score, l = sum_j exp(s[j] - m), and
// o = sum_j exp(s[j] - m) v[j] (Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax"). Without keys
// m = -infinity, l = 0 and o = 0, which adds nothing.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "base/host_device.h"
#include "device/group.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

// A unit: the query heads of one KV head of one sequence. In memory: o [heads, value_dim], then m [heads], then l [heads].
struct DecodeUnit {
  int heads;  // num_heads / num_kv_heads
  int value_dim;

  HEDDLE_HOST_DEVICE std::size_t floats() const {
    return static_cast<std::size_t>(heads) * (static_cast<std::size_t>(value_dim) + 2);
  }
  HEDDLE_HOST_DEVICE float* o(float* unit, int head) const { return unit + head * value_dim; }
  HEDDLE_HOST_DEVICE float& m(float* unit, int head) const { return unit[heads * value_dim + head]; }
  HEDDLE_HOST_DEVICE float& l(float* unit, int head) const { return unit[heads * value_dim + heads + head]; }
  HEDDLE_HOST_DEVICE const float* o(const float* unit, int head) const { return unit + head * value_dim; }
  HEDDLE_HOST_DEVICE float m(const float* unit, int head) const { return unit[heads * value_dim + head]; }
  HEDDLE_HOST_DEVICE float l(const float* unit, int head) const { return unit[heads * value_dim + heads + head]; }
};

namespace detail {

HEDDLE_HOST_DEVICE float exp_of(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  return std::exp(x);
#endif
}

// 16 sums side by side, which compilers keep in vectors; added in a fixed order.
template <class T>
HEDDLE_HOST_DEVICE float dot(const float* q, const T* k, int head_dim) {
  constexpr int kLanes = 16;
  float sums[kLanes] = {};
  int d = 0;
  for (; d + kLanes <= head_dim; d += kLanes)
    for (int i = 0; i < kLanes; ++i) sums[i] += q[d + i] * to_float(k[d + i]);
  for (int i = 0; d < head_dim; ++d, ++i) sums[i] += q[d] * to_float(k[d]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

}  // namespace detail

// The keys of one sequence on this rank.
struct DecodeKeys {
  PagedKv kv;
  const std::int32_t* pages;
  int count;  // 0: none
};

// The part of one unit over these keys: online softmax over blocks of 128 keys. The heads are shared among the lanes of
// the group. q: [unit.heads, kv.head_dim], float32.
template <class T, Group G>
HEDDLE_HOST_DEVICE void partial_attention(const G& group, const DecodeUnit& unit, const float* q, int kv_head,
                                          const DecodeKeys& keys, float scale, float* part) {
  constexpr int kBlockOfKeys = 128;
  const int head_dim = keys.kv.head_dim;
  const auto* const all_keys = static_cast<const T*>(keys.kv.keys);
  const auto* const all_values = static_cast<const T*>(keys.kv.values);
  for (int head = group.lane(); head < unit.heads; head += group.lanes()) {
    float* const o = unit.o(part, head);
    for (int d = 0; d < unit.value_dim; ++d) o[d] = 0;
    float m = -std::numeric_limits<float>::infinity(), l = 0;
    for (int begin = 0; begin < keys.count; begin += kBlockOfKeys) {
      const int size = keys.count - begin < kBlockOfKeys ? keys.count - begin : kBlockOfKeys;
      float scores[kBlockOfKeys];
      float largest = m;
      for (int j = 0; j < size; ++j) {
        const int at = begin + j, page = at / keys.kv.page_size, slot = at % keys.kv.page_size;
        scores[j] =
            detail::dot(q + head * head_dim, all_keys + keys.kv.offset(keys.pages[page], kv_head, slot), head_dim) *
            scale;
        largest = scores[j] > largest ? scores[j] : largest;
      }
      const float shrink = detail::exp_of(m - largest);
      m = largest;
      l *= shrink;
      for (int d = 0; d < unit.value_dim; ++d) o[d] *= shrink;
      for (int j = 0; j < size; ++j) {
        const int at = begin + j, page = at / keys.kv.page_size, slot = at % keys.kv.page_size;
        const T* const v = all_values + keys.kv.offset(keys.pages[page], kv_head, slot);
        const float weight = detail::exp_of(scores[j] - m);
        l += weight;
        for (int d = 0; d < unit.value_dim; ++d) o[d] += weight * to_float(v[d]);
      }
    }
    unit.m(part, head) = m;
    unit.l(part, head) = l;
  }
}

// What a head's merge has seen so far, beside the sum of o in y.
struct MergedSums {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
};

// Adds a head's part to its sums and to y [value_dim], which holds 0 before the first. In rank order, every rank gets the
// same bits.
HEDDLE_HOST_DEVICE void merge_head(const DecodeUnit& unit, int head, const float* part, MergedSums& sums, float* y) {
  const float l = unit.l(part, head), m = unit.m(part, head);
  if (l == 0) return;  // no keys; its m would make a NaN of two infinities
  const float most = sums.m > m ? sums.m : m;
  const float keep = sums.l == 0 ? 0 : detail::exp_of(sums.m - most), take = detail::exp_of(m - most);
  const float* const o = unit.o(part, head);
  for (int d = 0; d < unit.value_dim; ++d) y[d] = y[d] * keep + o[d] * take;
  sums = {.m = most, .l = sums.l * keep + l * take};
}

// y = o / l; 0 where no rank has a key.
HEDDLE_HOST_DEVICE void finish_head(const DecodeUnit& unit, const MergedSums& sums, float* y) {
  for (int d = 0; d < unit.value_dim; ++d) y[d] = sums.l == 0 ? 0 : y[d] / sums.l;
}

}  // namespace heddle
