// Copying and clearing bytes in stream order, whichever side of a GPU they lie on.
#pragma once

#include <cstddef>

#include "base/stream.h"

namespace heddle {

// Enqueues a copy of `size_bytes`. On a CUDA stream either address may be host memory, pageable memory making the call
// wait; on a CPU stream both are. The ranges do not overlap.
void enqueue_copy(Stream& stream, void* destination, const void* source, std::size_t size_bytes);

// Enqueues setting `size_bytes` of the stream's device's memory to zero.
void enqueue_clear(Stream& stream, void* memory, std::size_t size_bytes);

}  // namespace heddle
