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

}  // namespace heddle::cuda
