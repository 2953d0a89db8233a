// Which kernels some work consists of, so that a test of the fast ones cannot silently test the simple ones.
#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/stream.h"

namespace heddle {

// Records what `enqueue` gives `stream`, a CUDA stream, and runs none of it. Returns the mangled names of the kernels, in
// no order; kernels of other libraries have none. What `enqueue` does for the first time it must have done before, as in
// base/graph.h. Defined in builds with CUDA alone.
std::vector<std::string> recorded_kernels(Stream& stream, FunctionRef<void()> enqueue);

}  // namespace heddle
