// Discovery through the CUDA runtime. Defined only in builds with CUDA; used behind `if constexpr (kHaveCuda)`.
#pragma once

#include "machine/gpu.h"

namespace heddle::cuda {

GpuDiscovery discover_gpus();

}  // namespace heddle::cuda
