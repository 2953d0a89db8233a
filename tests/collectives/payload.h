// What ranks contribute in tests, and what must come of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace heddle {

using Bits = std::vector<std::byte>;  // elements of a dtype

inline float element(const Bits& bits, DType dtype, std::size_t i) {
  float value;
  convert(bits.data() + i * size_of(dtype), dtype, &value, DType::float32, 1);
  return value;
}

inline void set_element(Bits& bits, DType dtype, std::size_t i, float value) {
  convert(&value, DType::float32, bits.data() + i * size_of(dtype), dtype, 1);
}

// Random, of all magnitudes that do not overflow in a sum, a function of (seed, rank); now and then -0, infinity, NaN,
// and with an odd seed some words of 64 bits that the low-latency channel gives a meaning: the empty word (-1) and the
// escape word (packet.cuh).
inline Bits payload(DType dtype, std::size_t count, int rank, std::uint32_t seed) {
  Bits bits(count * size_of(dtype));
  std::uint32_t state = seed * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    float value = std::ldexp(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f,
                             static_cast<int>(state >> 8 & 15u) - 6);
    if (state >> 24 == 7) value = -0.0f;
    if (state >> 24 == 8 && i % 3 == 0) value = std::numeric_limits<float>::infinity();
    if (state >> 24 == 9 && i % 3 == 0) value = std::numeric_limits<float>::quiet_NaN();
    set_element(bits, dtype, i, value);
  }
  if (seed % 2 == 1 && bits.size() >= 48) std::memset(bits.data() + 16, 0xff, 24);
  const std::uint64_t escape = ~std::uint64_t{1};
  if (seed % 4 == 3 && bits.size() >= 48) std::memcpy(bits.data() + 24, &escape, sizeof escape);
  return bits;
}

// The sum over ranks of element i, in float32 and in rank order, rounded once.
inline Bits sum_in_rank_order(DType dtype, const std::vector<Bits>& inputs) {
  Bits sum(inputs.front().size());
  for (std::size_t i = 0; i < sum.size() / size_of(dtype); ++i) {
    float total = element(inputs[0], dtype, i);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) total += element(inputs[rank], dtype, i);
    set_element(sum, dtype, i, total);
  }
  return sum;
}

// Sums: bit for bit, but any NaN for a NaN. The first element that differs, or -1.
inline std::ptrdiff_t first_difference(DType dtype, const Bits& a, const Bits& b) {
  if (a.size() != b.size()) return 0;
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < a.size() / size; ++i) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
    if (!std::isnan(element(a, dtype, i)) || !std::isnan(element(b, dtype, i))) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace heddle
