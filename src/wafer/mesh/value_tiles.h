// Matrices on a mesh, one tile per place, as structures of arrays across places.
#pragma once

#include <cstdint>
#include <memory>

#include "wafer/mesh/value_product.h"

namespace heddle::mesh {

// Zeroed floats, aligned to a cache line, followed by 16 more that vectors may read. Throws Failure with the size when
// memory is short.
class ValueArray {
 public:
  ValueArray() = default;
  explicit ValueArray(std::int64_t count);

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> data_;
  std::int64_t size_ = 0;
};

// A tile [rows, columns] at each of `width` x `height` places: [y][r][c][x], pitch value_pitch(width).
class ValueTiles {
 public:
  ValueTiles() = default;
  ValueTiles(int width, int height, int rows, int columns)
      : width_(width),
        height_(height),
        rows_(rows),
        columns_(columns),
        pitch_(value_pitch(width)),
        values_(height * row_values()) {}

  int width() const { return width_; }
  int height() const { return height_; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  std::int64_t pitch() const { return pitch_; }
  std::int64_t row_values() const { return std::int64_t{rows_} * columns_ * pitch_; }  // for one row of places

  // Element (r, c) of the places of row y: [width].
  float* at(int y, int r, int c) { return values_.data() + index(y, r, c); }
  const float* at(int y, int r, int c) const { return values_.data() + index(y, r, c); }

 private:
  std::int64_t index(int y, int r, int c) const { return y * row_values() + (std::int64_t{r} * columns_ + c) * pitch_; }

  int width_ = 0, height_ = 0, rows_ = 0, columns_ = 0;
  std::int64_t pitch_ = 0;
  ValueArray values_;
};

}  // namespace heddle::mesh
