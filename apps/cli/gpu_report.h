// Where the time of GPUs went, from the records of their kernels (base/gpu_activity.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/gpu_activity.h"

namespace heddle {

// Of one GPU, from its first kernel's begin to its last one's end: the parts add up to `seconds`. A kernel works, which is
// computation or transfer, for the share of its time that its blocks did not wait for peers (GpuEntry::waited).
struct GpuShares {
  int device = 0;
  int kernels = 0;  // and copies and fills
  double seconds = 0;
  double compute = 0;          // a kernel that computes works
  double transfer = 0;         // none does, and one that moves rows between ranks works
  double synchronous = 0;      // the bulk-synchronous tax: none works, since blocks wait for their peers
  double idle = 0;             // nothing runs: the next kernel has not been launched, or its launch takes its time
  double hidden_transfer = 0;  // transfers while others compute, a part of `compute`
};
std::vector<GpuShares> gpu_shares(const std::vector<GpuTrack>& tracks);

// All calls of one kernel on one GPU.
struct KernelTime {
  int device = 0;
  std::string name;
  int calls = 0;
  double seconds = 0;
  double waited = 0;  // of it, the blocks' waits for peers, in the mean
};
// Those that took longest first.
std::vector<KernelTime> kernel_times(const std::vector<GpuTrack>& tracks);

// All waits of one rank for another, for one reason, in calls of one kernel.
struct WaitTime {
  int device = 0;
  int rank = 0, from = 0;
  std::string kernel, name;
  int calls = 0;       // that waited
  double blocks = 0;   // that waited, of a call
  double seconds = 0;  // of a block that waited, in the mean over blocks; sum over calls
  double longest = 0;  // of a block
};
// In the order of ranks, those that took longest first.
std::vector<WaitTime> wait_times(const std::vector<GpuTrack>& tracks);

// Kernels of collectives and of the fabric (run_body runs what the paced and the staged one enqueue), sums over ranks,
// and copies between GPUs, by their names without namespaces and template arguments. GEMMs that gather or sum while
// they multiply compute.
bool is_transfer_kernel(std::string_view name);

}  // namespace heddle
