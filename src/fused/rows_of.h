// Rows of a tensor, as tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor.h"

namespace heddle {

// The rows [first, first + count) of `tensor`.
inline Tensor rows_of(Tensor tensor, std::int64_t first, std::int64_t count) {
  tensor.data = static_cast<std::byte*>(tensor.data) +
                static_cast<std::size_t>(first * tensor.row_stride) * size_of(tensor.dtype);
  tensor.rows = count;
  return tensor;
}

}  // namespace heddle
