// What the end of a kernel orders on a GPU, for tasks of the CPU.
#pragma once

#include <atomic>

#include "base/sanitizer.h"

namespace heddle {

// The end of a kernel on a GPU orders its loads and stores, relaxed ones included, before what the stream does next.
// Packets need that from epoch to epoch (low_latency.cuh); this fence is its CPU counterpart. ThreadSanitizer does not
// model fences, but only packets, which are atomic, depend on this one.
inline void end_as_a_kernel() {
#if !HEDDLE_THREAD_SANITIZER  // GCC warns of a fence that it compiles
  std::atomic_thread_fence(std::memory_order_acq_rel);
#endif
}

}  // namespace heddle
