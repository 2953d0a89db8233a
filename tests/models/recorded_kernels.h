// Which kernels some work consists of, so that a test of the fast ones cannot silently test the simple ones; and how
// large their grids are, so that none takes more of a GPU than its lane has.
#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/stream.h"

namespace heddle {

struct RecordedKernel {
  std::string name;      // mangled
  int blocks = 0;        // of the grid
  int cluster = 1;       // blocks of a cluster
  int blocks_of_sm = 0;  // that an SM holds at a time
};

// Records what `enqueue` gives `stream`, a CUDA stream, and runs none of it. Returns the kernels, in no order, but for
// those of other libraries, whose names are not known. What `enqueue` does for the first time it must have done before,
// as in base/graph.h. Defined in builds with CUDA alone.
std::vector<RecordedKernel> recorded_kernels(Stream& stream, FunctionRef<void()> enqueue);

// Records likewise, then runs what was recorded, a kernel at a time, with nothing before or behind it. Returns a line
// about the first one that has not ended after some seconds, with its name and its cluster; empty where all end.
std::string first_that_waits(Stream& stream, FunctionRef<void()> enqueue);

}  // namespace heddle
