// What the GPUs of this process do while a GpuActivity lives: kernels, copies and fills, by CUPTI's activity records. Times are
// those of trace_clock() (tracer.h), so that they stand beside the tracks of CPU streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tracer.h"

namespace heddle {

// Waits of one kernel's blocks for one peer, for one reason, put together.
struct PeerWaits {
  std::string name;
  int rank, from;
  std::int64_t begin, end;  // of the first and the last of them
  int blocks;               // that waited
  std::int64_t sum;         // of the times that they waited
  std::int64_t longest;     // of a block
};

// A kernel, copy or fill.
struct GpuEntry {
  std::string name;
  std::int64_t begin = 0, end = 0;
  int blocks = 0;  // of the grid; 0: no kernel
  // Empty until somebody places them: in the order of their begins, of two the longer one first; and how long the grid's
  // blocks waited for any peer, in the mean.
  std::vector<PeerWaits> waits;
  std::int64_t waited = 0;
};

// One stream of one GPU, in the order of begins. With PDL a kernel begins while the one ahead still runs.
struct GpuTrack {
  int device = 0;
  std::uint32_t stream = 0;  // CUPTI's number
  std::vector<GpuEntry> entries;
};

// A kernel's name as a reader wants it: without return type, parameters and Heddle's namespaces.
std::string short_kernel_name(std::string_view demangled);

struct GpuRecords {
  std::vector<GpuTrack> tracks;  // ordered by device and stream
  std::size_t dropped = 0;       // records that found no room
};

// At most one lives at a time (InvalidArgument otherwise). To be made before the process uses a GPU.
class GpuActivity {
 public:
  GpuActivity();  // throws Failure where the system has no CUPTI of this build's CUDA, or that refuses
  GpuActivity(const GpuActivity&) = delete;
  GpuActivity& operator=(const GpuActivity&) = delete;
  ~GpuActivity();  // NOLINT(performance-trivially-destructible): with CUPTI it stops the recording

  // All that has ended so far. Every stream has been synchronized. Throws Failure where CUPTI does not deliver.
  GpuRecords collect();
};

}  // namespace heddle
