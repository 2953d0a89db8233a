// Named tensors, wherever they come from: a checkpoint's folder, or a model that is made up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace heddle {

class Stream;

// An element type as the safetensors format knows it; Heddle computes with three of them.
struct StoredDType {
  std::string_view name;       // "BF16"; a literal
  int bits = 0;                // of one element
  std::optional<DType> dtype;  // what it is to Heddle; nothing: cannot be loaded

  friend bool operator==(const StoredDType&, const StoredDType&) = default;
};

// By the format's name; nothing when the format has no such type.
std::optional<StoredDType> stored_dtype(std::string_view name);
StoredDType stored_dtype(DType dtype);

struct TensorInfo {
  StoredDType dtype;
  std::vector<std::int64_t> shape;
  std::size_t size_bytes = 0;
  std::string file;  // path of the file that holds it

  std::int64_t num_elements() const;
};

// Bytes of a tensor, and what keeps them in memory.
struct TensorRows {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::vector<std::string_view> names() const = 0;  // sorted

  // Null when there is no tensor of that name. Valid as long as the source.
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // Rows [first_row, first_row + num_rows) as stored, row-major; a row is what lies under one index of the first
  // dimension. Throws InvalidArgument when there is no such tensor or row.
  virtual TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const = 0;

  // The same bytes, written to `destination` by the calling thread alone: for callers with several threads of their
  // own.
  virtual void read_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows,
                         std::byte* destination) const;

  // Enqueues making the same rows, in `dtype`, in the memory of the stream's GPU, where the source needs no host for
  // that; otherwise returns false and does nothing.
  virtual bool make_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
                         std::byte* destination, Stream& stream) const;

  // False where only names, dtypes and shapes are to be had: rows() must then not be called, and a WeightLoader checks
  // without loading.
  virtual bool has_contents() const { return true; }

  // Where tensors were looked for, to begin a message with.
  virtual std::string where() const = 0;
};

// For messages: a name in quotation marks, escaped and cut to one line; a shape as [5632, 2048].
std::string quoted_name(std::string_view name);
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace heddle
