// Operands for tests of operators: rows with room between them that nobody may touch, weights and pages of any dtype
// and alignment, and streams to run on.
#pragma once

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "base/weight.h"

namespace heddle {

inline constexpr DType kDTypes[] = {DType::float32, DType::bfloat16, DType::float16};
inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kUnit = unit_roundoff(DType::float32);

// Calls enqueue(stream) and waits.
template <class F>
void on_cpu(int num_threads, F enqueue) {
  ThreadPool pool(num_threads);
  Stream stream(pool);
  enqueue(stream);
  stream.synchronize();
}

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Rows that lie `gap` elements apart, NaN in between.
class Rows {
 public:
  Rows(std::int64_t rows, std::int64_t columns, std::int64_t gap = 0)
      : tensor_{nullptr, rows, columns, columns + gap},
        values_(static_cast<std::size_t>(rows * (columns + gap)), kPoison) {
    tensor_.data = values_.data();
  }
  static Rows of(const std::vector<float>& values, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
    Rows result(rows, columns, gap);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * columns, columns, result.row(r));
    return result;
  }
  static Rows random(std::int64_t rows, std::int64_t columns, std::uint32_t seed, float scale = 1,
                     std::int64_t gap = 0) {
    return of(random_floats(static_cast<std::size_t>(rows * columns), seed, scale), rows, columns, gap);
  }
  Rows(const Rows& other) : tensor_(other.tensor_), values_(other.values_) { tensor_.data = values_.data(); }
  Rows& operator=(const Rows&) = delete;

  operator Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor): stands for its tensor
  float* row(std::int64_t r) { return values_.data() + r * tensor_.row_stride; }
  const float* row(std::int64_t r) const { return values_.data() + r * tensor_.row_stride; }
  std::int64_t rows() const { return tensor_.rows; }
  std::int64_t columns() const { return tensor_.columns; }

  // The first `count` rows as a tensor.
  Tensor first(std::int64_t count) const { return part(0, count); }
  Tensor part(std::int64_t begin, std::int64_t count) const {
    Tensor part = tensor_;
    part.data = static_cast<float*>(tensor_.data) + begin * tensor_.row_stride;
    part.rows = count;
    return part;
  }

  // What lies between the rows is as it was.
  bool gaps_untouched() const {
    for (std::int64_t r = 0; r < tensor_.rows; ++r)
      for (std::int64_t c = tensor_.columns; c < tensor_.row_stride; ++c)
        if (!std::isnan(row(r)[c])) return false;
    return true;
  }

 private:
  Tensor tensor_;
  std::vector<float> values_;
};

// The bits of all rows, for comparisons that tell -0 from 0 and find NaN equal to itself.
inline std::vector<std::uint32_t> bits(const Rows& rows, std::int64_t begin, std::int64_t count) {
  std::vector<std::uint32_t> result;
  for (std::int64_t r = begin; r < begin + count; ++r)
    for (std::int64_t c = 0; c < rows.columns(); ++c) result.push_back(std::bit_cast<std::uint32_t>(rows.row(r)[c]));
  return result;
}
inline std::vector<std::uint32_t> bits(const Rows& rows) {
  return bits(rows, 0, rows.rows());
}

// Elements of a dtype at an address that is `misalignment` elements past a 64-byte boundary.
class Elements {
 public:
  Elements(std::size_t count, DType dtype, std::size_t misalignment = 0)
      : dtype_(dtype),
        count_(count),
        offset_(misalignment * size_of(dtype)),
        bytes_(count * size_of(dtype) + offset_ + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    offset_ += (64 - address % 64) % 64;
  }
  Elements(const std::vector<float>& values, DType dtype, std::size_t misalignment = 0)
      : Elements(values.size(), dtype, misalignment) {
    convert(values.data(), DType::float32, data(), dtype, values.size());
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  void* data() { return bytes_.data() + offset_; }
  const void* data() const { return bytes_.data() + offset_; }
  std::size_t count() const { return count_; }
  std::vector<float> floats() const {
    std::vector<float> values(count_);
    convert(data(), dtype_, values.data(), DType::float32, count_);
    return values;
  }
  // All bits set: a NaN in each of the three types.
  void poison() { std::memset(data(), 0xff, count_ * size_of(dtype_)); }

 private:
  DType dtype_;
  std::size_t count_;
  std::size_t offset_;
  std::vector<std::byte> bytes_;
};

inline Weight one_block(const Elements& elements, DType dtype, std::int64_t out_features, std::int64_t in_features) {
  Weight weight;
  weight.blocks[0] = {elements.data(), out_features};
  weight.out_features = out_features;
  weight.in_features = in_features;
  weight.dtype = dtype;
  return weight;
}

// Runs `call` and expects an InvalidArgument whose message holds `part`.
template <class F>
void expect_invalid(F call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected an error with: " << part;
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

}  // namespace heddle
