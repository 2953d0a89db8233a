// Where an operator runs: its stream, the SMs that its kernels may occupy at a time (a target for cuBLASLt: linear.h),
// and a workspace. Kernels that run side by side divide a device's SMs by lanes.
#pragma once

#include <cstddef>

#include "base/stream.h"

namespace heddle {

class DryRun;

// Memory of the stream's device that an operator may use while it runs. Operators of one lane share it in stream order;
// each lane has its own.
struct Workspace {
  void* data = nullptr;
  std::size_t size_bytes = 0;
};

// The SMs of a GPU; 0 for the CPU. Queries the driver once per device. Throws Failure when the device is absent.
int num_sms_of(Device device);

// Passed by reference to operators, which do not keep it. `stream` must outlive it.
struct Lane {
  // All of the stream's device. Not explicit, so that a stream can be passed where nothing is shared.
  Lane(Stream& of);  // NOLINT(google-explicit-constructor)
  Lane(Stream& of, Workspace workspace_of);

  // Throws InvalidArgument unless on a GPU 1 <= sms <= num_sms_of(device). The CPU ignores `sms`.
  Lane(Stream& of, int sms, Workspace workspace_of = {});

  // For a dry run: operators check and record their params and enqueue nothing (kernels/dry_run.h). The stream's device
  // need not exist, and the lane has the fewest SMs.
  Lane(Stream& of, DryRun& dry_run_of);

  // The same lane with another workspace.
  Lane with(Workspace other) const;

  // The device's other SMs, which this lane must not count on: a kernel may hold them until a peer makes progress.
  int num_other_sms() const { return num_sms_of(stream.device()) - num_sms; }

  Stream& stream;
  int num_sms;  // on a GPU at least 1, on the CPU 0
  Workspace workspace;
  DryRun* dry_run = nullptr;  // null: operators enqueue
};

}  // namespace heddle
