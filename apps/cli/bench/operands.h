// Operands for operator benchmarks: device memory filled with random numbers, and copies of rows on the host for
// comparison.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

// Owns all operands. Values are those of synthetic_values.h, never zero, from a pattern of some millions that is copied
// with another offset for each megabyte or so.
class Operands {
 public:
  explicit Operands(Stream& stream) : stream_(stream) {}

  Stream& stream() { return stream_; }

  Tensor tensor(std::int64_t rows, std::int64_t columns, DType dtype);
  Tensor like(const Tensor& other);  // shape, dtype and stride
  // deviation 1/sqrt(in_features)
  Weight weight(std::int64_t out_features, std::int64_t in_features, DType dtype);
  void* random(std::size_t count, DType dtype, double deviation);
  void* zeros(std::size_t size_bytes);
  Lane lane(std::size_t workspace_bytes);  // of the whole device, as an executor's, with memory of its own
  template <class T>
  const T* array(const std::vector<T>& values) {
    return static_cast<const T*>(upload(values.data(), values.size() * sizeof(T)));
  }

 private:
  void* take(std::size_t size_bytes);
  void* upload(const void* bytes, std::size_t size_bytes);
  const std::byte* pattern(DType dtype, double deviation);

  Stream& stream_;
  std::vector<Buffer> buffers_;
  std::map<std::pair<DType, double>, Buffer> patterns_;
  std::uint64_t next_start_ = 0;
};

// An element of the matrix with this number, from -1 to 1, rounded to `dtype`: a hash of its place, so that each rank
// makes its slice and the host any element.
float hashed_element(std::uint32_t matrix, DType dtype, std::int64_t row, std::int64_t column);

// Rows on the host, contiguous.
class HostRows {
 public:
  HostRows(std::int64_t rows, std::int64_t columns, DType dtype);
  // Copies these rows of `tensor`, in its dtype. Waits for the stream.
  HostRows(Stream& stream, const Tensor& tensor, std::span<const std::int64_t> rows);
  HostRows(Stream& stream, const Weight& weight, std::span<const std::int64_t> rows);

  Tensor tensor() { return {data_.data(), rows_, columns_, columns_, dtype_}; }
  Weight weight();
  HostRows widened() const;  // to float32
  std::vector<float> floats() const;
  std::int64_t rows() const { return rows_; }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  DType dtype_;
  std::vector<std::byte> data_;
};

// Up to `most` indices of [0, count), evenly spaced, including the first and the last.
std::vector<std::int64_t> sampled(std::int64_t count, std::int64_t most);

// |got - wanted| / |wanted|, Euclidean; infinite where a number is not finite.
double relative_error(std::span<const float> got, std::span<const float> wanted);

}  // namespace heddle
