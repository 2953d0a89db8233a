// Synthetic weights made where they will be used, on a GPU. Defined only in builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/stream.h"
#include "weights/synthetic_values.h"

namespace heddle::cuda {

// Enqueues making elements [first, first + count), rounded to `stored` as fill_synthetic() gives them, bit for bit, and
// then to `dtype` as convert() does. `destination` is memory of the stream's device, aligned to the dtype. Throws
// Failure when CUDA refuses.
void fill_synthetic(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType stored, DType dtype,
                    void* destination, Stream& stream);

}  // namespace heddle::cuda
