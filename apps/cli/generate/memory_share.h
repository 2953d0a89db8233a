// How near decoding comes to the rate of the memory that it reads.
#pragma once

#include <string>

#include "base/device.h"
#include "cli/speed.h"
#include "models/model.h"

namespace heddle {

// "71 % of the memory bandwidth (21.4 GB/s)", of a GPU with its name and the data sheet's rate. On the CPU the rate is
// measured, once for each machine. Empty where caches hold the weights that a step reads, where no step only decoded,
// and on a CPU without the memory to measure with.
std::string memory_share(const SpeedMeter& speed, const ModelShape& shape, Device device, int threads);

}  // namespace heddle
