// Access to elements of activations and weights in kernels: packs of eight for aligned rows, single elements otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/alignment.h"
#include "base/dtype.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/tensor.h"
#include "kernels/sm90/convert_sm90.cuh"

namespace heddle {

inline constexpr int kPackElements = 8;

struct Pack {
  float values[kPackElements];
};

template <class T>
inline constexpr DType kDTypeOf = DType::float32;
template <>
inline constexpr DType kDTypeOf<bfloat16> = DType::bfloat16;
template <>
inline constexpr DType kDTypeOf<float16> = DType::float16;

// Eight elements as they lie in memory. A thread that loads several packs, or loads conditionally, loads them raw and
// unpacks later, so that no load waits for another.
template <class T>
struct RawPack {
  uint4 words[sizeof(T) / 2];
};

// `from` is 16-byte aligned.
template <class T>
__device__ inline RawPack<T> load_raw(const T* source) {
  RawPack<T> raw;
  const auto* words = reinterpret_cast<const uint4*>(source);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) raw.words[i] = words[i];
  return raw;
}

template <class T>
__device__ inline Pack unpack(const RawPack<T>& raw) {
  Pack pack;
  const uint4 a = raw.words[0];
  if constexpr (sizeof(T) == 4) {
    const uint4 b = raw.words[1];
    const std::uint32_t bits[kPackElements] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) pack.values[i] = __uint_as_float(bits[i]);
  } else {
    const std::uint32_t bits[kPackElements / 2] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int i = 0; i < kPackElements / 2; ++i) {
      pack.values[2 * i] = sm90::low_element<T>(bits[i]);
      pack.values[2 * i + 1] = sm90::high_element<T>(bits[i]);
    }
  }
  return pack;
}

template <class T>
__device__ inline Pack load_pack(const T* source) {
  return unpack(load_raw(source));
}

template <class T>
__device__ inline void store_pack(T* destination, const Pack& pack) {
  auto* words = reinterpret_cast<uint4*>(destination);
  const auto word = [&](int i) {
    if constexpr (sizeof(T) == 4)
      return __float_as_uint(pack.values[i]);
    else
      return sm90::pack<T>(pack.values[2 * i], pack.values[2 * i + 1]);
  };
  words[0] = make_uint4(word(0), word(1), word(2), word(3));
  if constexpr (sizeof(T) == 4) words[1] = make_uint4(word(4), word(5), word(6), word(7));
}

// Element `index` of an array whose dtype is known at run time only. Works for any alignment and length.
__device__ inline float load_element(const void* data, std::int64_t index, DType dtype) {
  return with_element(dtype, [&]<class T>() { return sm90::widened(static_cast<const T*>(data)[index]); });
}

__device__ inline void store_element(void* data, std::int64_t index, DType dtype, float value) {
  with_element(dtype, [&]<class T>() { static_cast<T*>(data)[index] = sm90::rounded<T>(value); });
}

// The tensor's element (row, column).
template <class T>
__device__ inline T* element(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(tensor.data) + row * tensor.row_stride + column;
}

// Whether rows are whole packs that can be loaded and stored.
inline bool takes_packs(const Tensor& tensor) {
  return tensor.columns % kPackElements == 0 && rows_are_aligned(tensor);
}

}  // namespace heddle
