// Turns named tensors into the operands of operators: checks that they exist and have the shapes that the config
// implies, and converts those that are not stored in the wanted dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/weight.h"
#include "weights/tensor_source.h"

namespace heddle {

// The required size of a dimension, and the reason for it, for the error message:
// {8192, "intermediate_size in config.json is 8192"}.
struct Extent {
  std::int64_t size = 0;
  std::string reason;
};

// Rows [first, first + count) of the tensor `name`, which must have exactly `rows` rows.
struct NamedRows {
  std::string name;
  Extent rows;
  std::int64_t first = 0;
  std::optional<std::int64_t> count = std::nullopt;  // nothing: all rows from `first`
};

// A matrix that is made of the elements of loaded rows: element (r, c) is the one at source(r, c).
struct Rearrangement {
  struct Place {
    std::int64_t row = 0;  // of the loaded rows
    std::int64_t column = 0;
  };

  std::int64_t rows = 0, columns = 0;
  std::function<Place(std::int64_t row, std::int64_t column)> source;
};

// Owns the loaded weights: GPU memory, or on the host converted copies and the mappings that views refer to. It must
// outlive every Weight and vector that the loader returned; the TensorSource need not.
struct WeightStorage {
  std::vector<std::shared_ptr<const void>> owners;
  Device device;
  std::size_t size_bytes = 0;  // in memory, of everything that was loaded
};

class WeightUpload;

struct WeightLoaderOptions {
  Device device;                                            // where the weights are loaded
  std::optional<DType> dtype;                               // wanted for matrices; nothing: as stored
  std::function<void(std::size_t bytes_done)> on_progress;  // bytes of stored tensors processed; may be empty
  // Memory of a GPU that is taken at once; more is taken as it is needed. Nothing: for all tensors of the source.
  std::optional<std::size_t> reserved_bytes;
};

class WeightLoader {
 public:
  // `source` must outlive the loader. For a source without contents it makes all checks and returns stand-ins for
  // memory (base/stand_in.h). Throws Failure when the device has too little memory.
  explicit WeightLoader(const TensorSource& source, WeightLoaderOptions options = {});

  // Loads up to Weight::kMaxBlocks tensors [rows, in_features], stacked in order. On a GPU the result is one block, and
  // its contents are valid once finish() has returned. On the host a block that is stored in the wanted dtype and
  // aligned is a view of the source's memory; other blocks are converted or copied. Without a wanted dtype, tensors of
  // different dtypes become float32, which represents them exactly. Throws InputError that names the tensor when it is
  // missing, or has another shape or a dtype that cannot be loaded.
  Weight matrix(std::span<const NamedRows> blocks, const Extent& in_features);
  Weight matrix(const NamedRows& rows, const Extent& in_features) { return matrix({&rows, 1}, in_features); }

  // The same with some columns only, of which alone memory is taken and contents are read; the result has columns.count
  // in_features. On the host it is a copy, unless the columns are all.
  Weight matrix(std::span<const NamedRows> blocks, const Extent& in_features, Slice columns);

  // Matrices made of the elements of a tensor's rows, which are read once: copies of one block each, in the wanted dtype
  // or as stored. Throws as the others do.
  std::vector<Weight> rearranged(const NamedRows& rows, const Extent& in_features,
                                 std::span<const Rearrangement> results);

  // A tensor [size] as float32, whatever the wanted dtype: norm weights and biases. On a GPU it is valid once finish()
  // has returned. Throws as matrix() does.
  const float* vector(const std::string& name, const Extent& size);

  // The same of numbers that must be finite. Throws InputError that names the first that is not.
  const float* finite_vector(const std::string& name, const Extent& size);

  // Tensors [rows], stacked in order, as float32: the biases of a matrix of several blocks. Throws as matrix() does.
  const float* vector(std::span<const NamedRows> blocks);

  // The dtype that all these tensors are stored in; where they differ float32, which holds all of them exactly. Throws as
  // matrix() does when one is missing or cannot be loaded.
  DType stored_dtype(std::span<const NamedRows> blocks);

  // Copies numbers that come from no tensor to the device of the weights.
  const float* constants(std::span<const float> values);

  // Copies addresses of what was loaded to a GPU that has the weights: a table for its kernels. Null on the CPU.
  const void* const* pointers(std::span<const void* const> addresses);

  // Returns the owner of the weights; the loader is then empty. Throws Failure when a file or the GPU fails. Throws
  // InputError that names a tensor of the source that was not loaded, unless its name ends with one of
  // `harmless_suffixes` ("rotary_emb.inv_freq").
  WeightStorage finish(std::span<const std::string_view> harmless_suffixes = {});

 private:
  const TensorInfo& checked(const std::string& name, std::span<const Extent> shape);
  Weight matrix_of(std::span<const NamedRows> blocks, const Extent& in_features, Slice columns);
  const void* load(const std::string& name, const TensorInfo& info, std::int64_t first_row, std::int64_t num_rows,
                   DType dtype);
  const void* load_columns(const NamedRows& rows, const TensorInfo& info, Slice columns, DType dtype);
  void copy_rows(const std::string& name, const TensorInfo& info, std::int64_t first_row, std::int64_t num_rows,
                 DType dtype, std::byte* destination);
  const void* upload(std::span<const NamedRows> blocks, Slice columns, std::int64_t all_columns, DType dtype);
  const void* keep(std::shared_ptr<Buffer> copy);
  void advance(std::size_t num_bytes);
  void report_progress() const;

  const TensorSource& source_;
  WeightLoaderOptions options_;
  std::shared_ptr<WeightUpload> upload_;  // null: on the host
  WeightStorage storage_;
  std::set<std::string, std::less<>> asked_for_;
  std::size_t bytes_done_ = 0;  // besides those of the upload
};

}  // namespace heddle
