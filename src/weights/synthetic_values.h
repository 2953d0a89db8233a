// The values of synthetic weights. Counter-based: an element is a pure function of its tensor and its index, in integer
// arithmetic and three exactly rounded float operations. Any device can therefore generate any slice, bit for bit.
//
// This header is the definition. Other implementations (a GPU's) must agree with it; tests/weights has goldens.
//
//   key      64 bits of FNV-1a over "<shape>/<tensor>", finished by splitmix64: add is the low half, mix the high one
//   word     lowbias32 (Wellons' hash-prospector) of a keyed and premixed counter: four multiplications of 32 bits,
//            where Philox takes ten of 64 bits for the same word; statistics are tested
//   integer  n = 2 (low half - high half) + 1: odd, so never 0; triangular, with standard deviation kUnitDeviation
//   float32  offset + scale * float(n): the product is rounded, then the sum (no fused multiply-add)
//   dtype    the float32 value rounded to nearest, ties to even
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace heddle {

struct SyntheticKey {
  std::uint32_t add = 0;
  std::uint32_t mix = 0;
};

constexpr SyntheticKey synthetic_key(std::string_view shape, std::string_view tensor) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u; };
  for (const char c : shape) add(c);
  add('/');
  for (const char c : tensor) add(c);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  hash ^= hash >> 31;
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

// The parameters of one tensor's elements.
struct SyntheticTensor {
  SyntheticKey key;
  float scale = 0;
  float offset = 0;
};

inline constexpr double kUnitDeviation = 53510;  // of the integers: 65536 * sqrt(2 / 3)

constexpr std::uint32_t synthetic_word(SyntheticKey key, std::uint64_t index) {
  std::uint32_t h = static_cast<std::uint32_t>(index) * 0x9e3779b1u + key.add;
  h += static_cast<std::uint32_t>(index >> 32) * 0xc2b2ae35u;
  h = (h ^ (h >> 16)) * 0x85ebca6bu + key.mix;
  h = (h ^ (h >> 16)) * 0x7feb352du;
  h = (h ^ (h >> 15)) * 0x846ca68bu;
  return h ^ (h >> 16);
}

constexpr std::int32_t synthetic_integer(SyntheticKey key, std::uint64_t index) {
  const std::uint32_t word = synthetic_word(key, index);
  return 2 * (static_cast<std::int32_t>(word & 0xffffu) - static_cast<std::int32_t>(word >> 16)) + 1;
}

constexpr float synthetic_value(const SyntheticTensor& tensor, std::uint64_t index) {
  const float product = tensor.scale * static_cast<float>(synthetic_integer(tensor.key, index));
  return tensor.offset + product;
}

// Generates elements [first, first + count) in `dtype`, as synthetic_value() and to_bfloat16() or to_float16() give
// them. `destination` is aligned to the dtype. Runs on the calling thread.
void fill_synthetic(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType dtype,
                    void* destination);

}  // namespace heddle
