// Random shapes and numbers that all ranks draw alike, and what a matrix product is in float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace heddle {

class Draws {
 public:
  explicit Draws(std::uint32_t seed) : state_(seed * 2654435761u + 12345u) {}
  // At least `least`, at most `most`.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    state_ = state_ * 1664525u + 1013904223u;
    return least + static_cast<std::int64_t>((state_ >> 12) % static_cast<std::uint32_t>(most - least + 1));
  }

 private:
  std::uint32_t state_;
};

// Numbers of -1 to 1 that the dtype holds exactly. In float32 their sums round, so another order shows.
inline std::vector<float> numbers(std::int64_t count, std::uint32_t seed, DType dtype) {
  Draws draws(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = dtype == DType::float32 ? static_cast<float>(draws.between(-500'000, 500'000)) * 2e-6f
                                    : static_cast<float>(draws.between(-64, 64)) / 64.0f;
  return values;
}

inline std::vector<bfloat16> rounded(const std::vector<float>& values) {
  std::vector<bfloat16> out;
  out.reserve(values.size());
  for (const float value : values) out.push_back(to_bfloat16(value));
  return out;
}

// Element (row, column) of A W^T, and the sum of its terms' magnitudes.
struct Dot {
  double value = 0, magnitude = 0;
};
inline Dot dot_of(const std::vector<float>& a, const std::vector<float>& w, std::int64_t k, std::int64_t row,
                  std::int64_t column) {
  Dot dot;
  for (std::int64_t i = 0; i < k; ++i) {
    const double term = static_cast<double>(a[static_cast<std::size_t>(row * k + i)]) *
                        static_cast<double>(w[static_cast<std::size_t>(column * k + i)]);
    dot.value += term;
    dot.magnitude += std::abs(term);
  }
  return dot;
}

// A float32 sum of k terms is off by at most k roundings of the sum of magnitudes, however it is ordered.
inline void expect_close(float got, const Dot& want, std::int64_t terms, const char* what, int call, std::int64_t at) {
  const double bound = static_cast<double>(terms + 2) * 0x1p-24 * (want.magnitude + 1e-30);
  if (!(std::abs(static_cast<double>(got) - want.value) <= bound))
    throw_error<Failure>("{}: call {} element {} is {}, expected {} within {}", what, call, at, got, want.value, bound);
}

}  // namespace heddle
