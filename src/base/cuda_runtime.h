// The few calls of the CUDA runtime that base needs, without CUDA's headers. Defined only in builds with CUDA; used
// behind `if constexpr (kHaveCuda)`. All throw Failure with CUDA's own words, but destroy_* and release, which
// destructors call. They leave the thread's current device as it was.
#pragma once

#include <cstddef>

#include "base/deadline.h"

namespace heddle::cuda {

void* create_stream(int device);
void destroy_stream(void* stream);
void synchronize_stream(void* stream, Deadline deadline);
void stream_wait_event(void* stream, void* event);

void* create_event(int device);  // without timing
void destroy_event(void* event);
void record_event(void* event, void* stream);
void synchronize_event(void* event, Deadline deadline);

void* allocate(int device, std::size_t size_bytes);
void release(int device, void* memory);
void copy(void* destination, const void* source, std::size_t size_bytes, void* stream);  // any direction

}  // namespace heddle::cuda
