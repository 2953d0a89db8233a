// Sums and maxima of 16 bytes of numbers, element by element. combined(a, b) and combined(b, a) have the same bits, NaN
// payloads aside, so two ranks that exchange their numbers end with the same ones.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/host_device.h"
#include "device/unrolled.cuh"
#include "device/vector_copy.h"
#include "device/widen.h"

namespace heddle {

enum class ReduceOp : std::uint8_t { sum, max };

// max: NaN where one of them is NaN; +0 is larger than -0.
template <ReduceOp kOp>
HEDDLE_HOST_DEVICE float combined(float a, float b) {
  if constexpr (kOp == ReduceOp::sum) {
    return a + b;
  } else {
    if (a != a || b != b) return std::bit_cast<float>(0x7fc00000u);
    if (a == b) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & std::bit_cast<std::uint32_t>(b));
    return a > b ? a : b;
  }
}

// The numbers of 16 bytes in float32. T: float, bfloat16 or float16.
template <class T>
class Numbers {
 public:
  HEDDLE_HOST_DEVICE explicit Numbers(const Vector16& vector) {
    unrolled<4>([&](auto i) {
      if constexpr (sizeof(T) == 4)
        values_[i] = std::bit_cast<float>(vector.words[i]);
      else
        widen_pair<T>(vector.words[i], values_[2 * i], values_[2 * i + 1]);
    });
  }

  template <ReduceOp kOp>
  HEDDLE_HOST_DEVICE void combine(const Vector16& vector) {
    const Numbers other(vector);
    unrolled<kCount>([&](auto i) { values_[i] = combined<kOp>(values_[i], other.values_[i]); });
  }

  // Each number rounded once to T.
  HEDDLE_HOST_DEVICE Vector16 vector() const {
    Vector16 vector;
    unrolled<4>([&](auto i) {
      if constexpr (sizeof(T) == 4)
        vector.words[i] = std::bit_cast<std::uint32_t>(values_[i]);
      else
        vector.words[i] = narrow_pair<T>(values_[2 * i], values_[2 * i + 1]);
    });
    return vector;
  }

 private:
  static constexpr int kCount = static_cast<int>(16 / sizeof(T));
  float values_[kCount];
};

template <class T, ReduceOp kOp>
HEDDLE_HOST_DEVICE Vector16 combined(const Vector16& a, const Vector16& b) {
  Numbers<T> numbers(a);
  numbers.template combine<kOp>(b);
  return numbers.vector();
}

}  // namespace heddle
