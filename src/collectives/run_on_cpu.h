// Communicator::run_on_cpu, for the sources of the collectives.
#pragma once

#include <atomic>

#include "collectives/communicator.h"
#include "device/group.h"

namespace heddle {

// The end of a kernel on a GPU orders its loads and stores, relaxed ones included, before what the stream does next.
// Packets need that from epoch to epoch (low_latency.cuh); this fence is its CPU counterpart. ThreadSanitizer does not
// model fences, but only packets, which are atomic, depend on this one.
inline void end_as_a_kernel() {
#ifndef __SANITIZE_THREAD__
  std::atomic_thread_fence(std::memory_order_acq_rel);
#endif
}

template <class Program>
void Communicator::run_on_cpu(const Program& program, Stream& stream, const std::optional<CallSignature>& to_compare) {
  if (!to_compare) {
    stream.enqueue([this, program](ThreadPool&) {
      program(HostThread{}, peers_, collective_memory_);
      end_as_a_kernel();
    });
    return;
  }
  stream.enqueue([this, program, mine = *to_compare](ThreadPool&) {
    call_check_->announce(mine);
    program(HostThread{}, hearing_peers_, collective_memory_);
    end_as_a_kernel();
  });
}

}  // namespace heddle
