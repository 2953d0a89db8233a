// Arithmetic on sizes from files or requests: an overflow is an error that names the quantity.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {

// a * b and a + b; throw InputError when the result does not fit into T.
template <std::integral T>
T checked_mul(T a, T b, std::string_view what) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) throw_error<InputError>("{}: {} x {} overflows", what, a, b);
  return result;
}

template <std::integral T>
T checked_add(T a, T b, std::string_view what) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) throw_error<InputError>("{}: {} + {} overflows", what, a, b);
  return result;
}

// Converts `value` to To; throws InputError when it does not fit.
template <std::integral To, std::integral From>
To narrow(From value, std::string_view what) {
  if (!std::in_range<To>(value)) throw_error<InputError>("{}: {} is out of range", what, value);
  return static_cast<To>(value);
}

// Smallest multiple of `multiple` that is >= value; both positive.
template <std::integral T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <std::integral T>
constexpr T ceil_div(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace heddle
