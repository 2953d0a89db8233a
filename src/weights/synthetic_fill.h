// Generates synthetic weights directly on a GPU. Defined only in builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/stream.h"
#include "weights/synthetic_values.h"

namespace heddle::cuda {

// Enqueues the generation of elements [first, first + count): rounded to `stored`, bit for bit as fill_synthetic()
// does, then to `dtype` as convert() does. `destination` is memory of the stream's device, aligned to the dtype. Throws
// Failure on a CUDA error.
void fill_synthetic(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType stored, DType dtype,
                    void* destination, Stream& stream);

// Elements first + r * row_stride + c, for r < rows and c < columns.
struct SyntheticColumns {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t row_stride = 0;
};

// The same for some columns of a matrix, row after row without gaps.
void fill_synthetic_columns(const SyntheticTensor& tensor, const SyntheticColumns& part, DType stored, DType dtype,
                            void* destination, Stream& stream);

}  // namespace heddle::cuda
