// A tensor as strategies and models pass it: a view of rows in memory that an Arena, a Buffer or a file owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/alignment.h"
#include "base/dtype.h"

namespace heddle {

// [rows, columns], row-major; row r begins at element r * row_stride. Activations are [num_tokens, features].
struct Tensor {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // in elements, >= columns
  DType dtype = DType::float32;

  // Rows [first, first + count).
  Tensor row_slice(std::int64_t first, std::int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first * row_stride) * size_of(dtype), count,
            columns, row_stride, dtype};
  }

  // Columns [first, first + count) of every row.
  Tensor column_slice(std::int64_t first, std::int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype), rows, count, row_stride,
            dtype};
  }
};

// Whether every row begins at a multiple of `bytes`, a power of two: those at `data` and every `row_stride` elements
// after it.
inline bool rows_are_aligned(const void* data, std::int64_t row_stride, DType dtype, std::size_t bytes = kVectorBytes) {
  return is_aligned(data, bytes) && static_cast<std::size_t>(row_stride) * size_of(dtype) % bytes == 0;
}

inline bool rows_are_aligned(const Tensor& rows, std::size_t bytes = kVectorBytes) {
  return rows_are_aligned(rows.data, rows.row_stride, rows.dtype, bytes);
}

}  // namespace heddle
