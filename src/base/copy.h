// Copies and clears memory in stream order, on the host or a GPU.
#pragma once

#include <cstddef>

#include "base/stream.h"

namespace heddle {

// Enqueues a copy of `size_bytes`. On a CUDA stream each address may be host memory; with pageable memory the call
// waits. On a CPU stream both are host memory. The ranges must not overlap.
void enqueue_copy(Stream& stream, void* destination, const void* source, std::size_t size_bytes);

// Enqueues setting `size_bytes` to zero, in memory of the stream's device.
void enqueue_clear(Stream& stream, void* memory, std::size_t size_bytes);

}  // namespace heddle
