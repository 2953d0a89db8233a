// Element types of tensors, and their conversions to and from float32. Rounding is to nearest, ties to even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

enum class DType : std::uint8_t { float32, bfloat16, float16 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

// "float32", "bfloat16", "float16": the names that config.json and the command line use.
std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);

// Half of the distance from 1 to the next number: the relative error of one rounding.
constexpr double unit_roundoff(DType dtype) {
  return dtype == DType::float32 ? 0x1p-24 : dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
}

struct bfloat16 {
  std::uint16_t bits;
};
struct float16 {
  std::uint16_t bits;
};

constexpr float to_float(float x) {
  return x;
}
constexpr float to_float(bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
constexpr float to_float(float16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));  // inf, NaN
  // Scaling by 2^112 moves the exponent's bias from 15 to 127 and normalises subnormals in one exact product.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}

constexpr bfloat16 to_bfloat16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};  // quiet NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
constexpr float16 to_float16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};   // NaN
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 puts the unit of the last place at 2^-24, so the addition itself rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

// Converts source[i], of type `from`, to destination[i], of type `to`. Both hold `count` elements and do not overlap.
void convert(const void* source, DType from, void* destination, DType to, std::size_t count);

}  // namespace heddle
