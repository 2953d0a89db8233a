// Named tensors from any source: a checkpoint's folder, or a synthetic model.
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
#include "weights/slice.h"

namespace heddle {

class Stream;

// An element type of the safetensors format; Heddle computes with three of them.
struct StoredDType {
  std::string_view name;       // "BF16"; a literal
  int bits = 0;                // of one element
  std::optional<DType> dtype;  // Heddle's type; nothing: cannot be loaded

  friend bool operator==(const StoredDType&, const StoredDType&) = default;
};

// Looks up a name of the format; nothing when the format has no such type.
std::optional<StoredDType> stored_dtype(std::string_view name);
StoredDType stored_dtype(DType dtype);

struct TensorInfo {
  StoredDType dtype;
  std::vector<std::int64_t> shape;
  std::size_t size_bytes = 0;
  std::string file;  // the file that holds it

  std::int64_t num_elements() const;
};

// Bytes of a tensor, and the owner that keeps them in memory.
struct TensorRows {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::vector<std::string_view> names() const = 0;  // sorted

  // Null when there is no such tensor. Valid as long as the source.
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // Rows [first_row, first_row + num_rows) as stored, row-major; a row is everything under one index of the first
  // dimension. Throws InvalidArgument when there is no such tensor or row.
  virtual TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const = 0;

  // Writes the same bytes to `destination`, on the calling thread only: for callers with threads of their own.
  virtual void read_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows,
                         std::byte* destination) const;

  // Writes columns [columns.first, columns.end()) of the rows of a matrix [rows, columns] to `destination`, as stored, row
  // after row without gaps. Reads nothing else, but for what shares a page of a file with it. Runs on the calling thread.
  virtual void read_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                            std::byte* destination) const;

  // Enqueues the generation of rows [first_row, first_row + num_rows), in `dtype`, in the memory of the stream's GPU, if the source can do that
  // without the host; otherwise returns false and does nothing.
  virtual bool make_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
                         std::byte* destination, Stream& stream) const;

  // The same of some columns of a matrix, row after row without gaps.
  virtual bool make_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                            DType dtype, std::byte* destination, Stream& stream) const;

  // False where only names, dtypes and shapes are available: then rows() must not be called, and a WeightLoader checks
  // without loading.
  virtual bool has_contents() const { return true; }

  // Where the tensors come from, to begin a message with.
  virtual std::string where() const = 0;
};

// Throws InvalidArgument unless the source has a matrix of that name with these columns.
void require_columns(const TensorSource& source, std::string_view name, Slice columns);

// For messages: a name in quotation marks, escaped and shortened to one line; a shape as [5632, 2048].
std::string quoted_name(std::string_view name);
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace heddle
