// What a communicator needs of CUDA, without its headers. Defined only in builds with CUDA.
#pragma once

#include <cstddef>

#include "base/stream.h"

namespace heddle::cuda {

// Sets `bytes` at `inbox`, a multiple of 16, to empty packets. Enqueues.
void fill_empty(std::byte* inbox, std::size_t bytes, Stream& stream);

}  // namespace heddle::cuda
