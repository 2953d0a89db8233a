// A weight matrix as operators see it: rows of one tensor, or of up to three stacked tensors (Q, K and V; gate and up),
// each row contiguous in memory. A view: the checkpoint or the loader owns the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/alignment.h"
#include "base/dtype.h"

namespace heddle {

// `num_rows` rows of a row-major matrix. `data` is at least aligned to the element's size.
struct WeightBlock {
  const void* data = nullptr;  // [num_rows, in_features]
  std::int64_t num_rows = 0;
};

// y = x W^T + bias with W [out_features, in_features], as checkpoints store it.
// Formats with scales (fp8, int4) will add a member here; today the dtype is the format.
struct Weight {
  static constexpr int kMaxBlocks = 3;

  std::array<WeightBlock, kMaxBlocks> blocks{};  // in order of rows; unused ones have no rows
  std::int64_t out_features = 0;                 // sum of the blocks' rows
  std::int64_t in_features = 0;
  DType dtype = DType::float32;
  const float* bias = nullptr;  // [out_features], added to y; null: none
  // A dtype that holds every number of the bias exactly: that of the checkpoint. float32 where nothing is known.
  DType bias_dtype = DType::float32;

  std::size_t row_bytes() const { return static_cast<std::size_t>(in_features) * size_of(dtype); }
  std::size_t size_bytes() const { return static_cast<std::size_t>(out_features) * row_bytes(); }

  // The first element of `row`, 0 <= row < out_features.
  const void* row(std::int64_t row) const {
    int block = 0;
    while (row >= blocks[block].num_rows) row -= blocks[block++].num_rows;
    return static_cast<const std::byte*>(blocks[block].data) + static_cast<std::size_t>(row) * row_bytes();
  }
};

// Whether every row begins at a multiple of kVectorBytes.
inline bool rows_are_aligned(const Weight& weight) {
  for (const WeightBlock& block : weight.blocks)
    if (block.num_rows > 0 && !is_aligned(block.data)) return false;
  return weight.row_bytes() % kVectorBytes == 0;
}

}  // namespace heddle
