// Where the time of GPUs went, from the records of their kernels (base/gpu_activity.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/gpu_activity.h"

namespace heddle {

// Of one GPU, from its first kernel's begin to its last one's end: the parts add up to `seconds`.
struct GpuShares {
  int device = 0;
  int kernels = 0;  // and copies and fills
  double seconds = 0;
  double compute = 0;          // a kernel that computes runs
  double transfer = 0;         // none does, and one that moves rows between ranks runs, or waits for its peers
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
};
// Those that took longest first.
std::vector<KernelTime> kernel_times(const std::vector<GpuTrack>& tracks);

// Kernels of collectives and of the fabric (run_body runs what the paced and the staged one enqueue), sums over ranks,
// and copies between GPUs, by their names without namespaces and template arguments. GEMMs that gather or sum while
// they multiply compute.
bool is_transfer_kernel(std::string_view name);

}  // namespace heddle
