// Where an operator runs: the stream that it is enqueued on, the SMs that its kernels may hold at a time, and memory
// that it may use meanwhile. Who divides a device among kernels that run side by side divides its SMs by lanes.
#pragma once

#include <cstddef>

#include "base/stream.h"

namespace heddle {

class DryRun;

// Memory of the stream's device that an operator may use while it runs. Operators of one lane share it, one after the
// other in stream order; lanes do not share one.
struct Workspace {
  void* data = nullptr;
  std::size_t size_bytes = 0;
};

// SMs of a GPU; 0 of the CPU. Throws Failure when the device is not there. Asks the driver once a device.
int num_sms_of(Device device);

// Passed by reference to operators, which keep nothing of it. `stream` must outlive it.
struct Lane {
  // All of the stream's device. Not explicit: who has a stream and nothing to share may pass it as it is.
  Lane(Stream& of);  // NOLINT(google-explicit-constructor)
  Lane(Stream& of, Workspace workspace_of);

  // Throws InvalidArgument unless on a GPU 1 <= sms <= num_sms_of(device). The CPU ignores `sms`.
  Lane(Stream& of, int sms, Workspace workspace_of = {});

  // Of a dry run: operators check their params, tell them to it and enqueue nothing (kernels/dry_run.h). The stream's
  // device need not be there, and the lane has the fewest SMs.
  Lane(Stream& of, DryRun& dry_run_of);

  // The same with other memory.
  Lane with(Workspace other) const;

  // SMs of the device that this lane must not count on: a kernel may hold them that ends only when a peer has come
  // further.
  int num_other_sms() const { return num_sms_of(stream.device()) - num_sms; }

  Stream& stream;
  int num_sms;  // on a GPU at least 1, on the CPU 0
  Workspace workspace;
  DryRun* dry_run = nullptr;  // null: operators enqueue
};

}  // namespace heddle
