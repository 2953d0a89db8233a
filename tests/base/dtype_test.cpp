#include "base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace heddle {
namespace {

// The nearest number of the format, computed without its bits: multiples of `min_exponent`'s unit, or 2^-precision
// relative.
double nearest(double x, int precision, int min_exponent, double overflow) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const double unit = std::ldexp(1.0, std::max(exponent - precision, min_exponent));
  const double rounded = std::nearbyint(x / unit) * unit;  // ties to even by default
  return std::abs(rounded) >= overflow ? std::copysign(INFINITY, x) : rounded;
}

TEST(DType, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float16 half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(to_float16(value)))) << bits;
    else
      ASSERT_EQ(to_float16(value).bits, half.bits) << bits;
  }
}

TEST(DType, EveryBfloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16 brain{static_cast<std::uint16_t>(bits)};
    const float value = to_float(brain);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(value)))) << bits;
    else
      ASSERT_EQ(to_bfloat16(value).bits, brain.bits) << bits;
  }
}

TEST(DType, RoundsToNearestTiesToEven) {
  // Every 4099th float: includes all exponents, subnormals and ties of both formats.
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 4099) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_float(to_float16(value)), nearest(value, 11, -24, 65520)) << value;
    ASSERT_EQ(to_float(to_bfloat16(value)), nearest(value, 8, -133, 0x1.ffp127)) << value;
  }
}

TEST(DType, TiesOfFloat16GoToEven) {
  EXPECT_EQ(to_float(to_float16(1 + 0x1p-11f)), 1.0f);
  EXPECT_EQ(to_float(to_float16(1 + 0x3p-11f)), 1 + 0x1p-9f);
  EXPECT_EQ(to_float(to_float16(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(to_float16(0x3p-25f)), 0x1p-23f);
  EXPECT_EQ(to_float(to_float16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_float16(65520.0f))));
}

TEST(DType, ConvertsArraysAtAnyAddress) {
  const std::vector<float> values{0, -1.5f, 3.25f, 65504, 1e-7f};
  const std::size_t count = values.size();
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    std::vector<std::byte> narrow(count * size_of(dtype) + 1);
    std::vector<std::byte> wide(count * 4 + 1);
    convert(values.data(), DType::float32, narrow.data() + 1, dtype, count);
    convert(narrow.data() + 1, dtype, wide.data() + 1, DType::float32, count);
    for (std::size_t i = 0; i < count; ++i) {
      float result;
      std::memcpy(&result, wide.data() + 1 + 4 * i, 4);
      EXPECT_NEAR(result, values[i], std::abs(values[i]) * unit_roundoff(dtype) + 0x1p-25) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace heddle
