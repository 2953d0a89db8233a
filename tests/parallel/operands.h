// What the tests of strategies multiply and add.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace heddle {

inline constexpr int kHidden = 20;

inline Tensor view(std::vector<float>& values, std::int64_t columns) {
  return {values.data(), std::ssize(values) / columns, columns, columns, DType::float32};
}

inline std::vector<float> ramp(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i + 1) * step);
  return values;
}

}  // namespace heddle
