// The calls of the CUDA runtime that base needs, without CUDA's headers. Defined only in builds with CUDA; used behind
// `if constexpr (kHaveCuda)`. All throw Failure with CUDA's message (LostDevice where the GPU broke), except destroy_*,
// release, unpin and abandon_capture. Destructors call these; they do nothing once a wait has passed its deadline. No
// call changes the thread's current device.
#pragma once

#include <cstddef>

#include "base/deadline.h"
#include "base/device.h"

namespace heddle::cuda {

void* create_stream(int device, StreamPriority priority);
void destroy_stream(int device, void* stream);  // waits for its work; create_stream may give it out again
void synchronize_stream(void* stream, Deadline deadline);
void stream_wait_event(void* stream, void* event);

void* create_event(int device);  // without timing
void destroy_event(void* event);
void record_event(void* event, void* stream);
void synchronize_event(void* event, Deadline deadline);

void* allocate(int device, std::size_t size_bytes);
void release(int device, void* memory);
void copy(void* destination, const void* source, std::size_t size_bytes, void* stream);  // any direction

void clear(int device, void* memory, std::size_t size_bytes, void* stream);

// Pins host memory, whole pages: every GPU of the process can then read and write it at the same address.
void pin(void* memory, std::size_t size_bytes);
void unpin(void* memory);

int num_sms(int device);  // asks the driver once a device

struct MemoryInfo {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
MemoryInfo memory_info(int device);  // the first use of a device takes tenths of a second

// From now on, work that this thread gives `stream` is recorded in a graph; end_capture returns it ready to run.
void begin_capture(void* stream);
void* end_capture(void* stream);
void abandon_capture(void* stream);  // does not throw
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph);

}  // namespace heddle::cuda
