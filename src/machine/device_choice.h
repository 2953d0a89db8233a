// Which device a model runs on: the one that the user asked for, or the best that is there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/device.h"
#include "base/function_ref.h"
#include "machine/gpu.h"

namespace heddle {

// "cpu", "cuda" (GPU 0) and "cuda:N"; nothing for any other text.
std::optional<Device> device_named(std::string_view name);

// Why GPU `index` cannot run Heddle's kernels, a sentence; empty: it can.
std::string why_unusable(const GpuDiscovery& found, int index);

struct DeviceChoice {
  Device device;
  std::string reason;  // one line: "asked for", or what was found
};

// Why a model does not fit into a device's memory, a sentence; empty: it does.
using DoesNotFit = FunctionRef<std::string(Device)>;

// `asked`: throws InputError when there are fewer GPUs, and Failure when there is none, it cannot run Heddle's kernels
// or the model does not fit. Nothing asked: the first GPU that is usable and that the model fits, else the CPU, the
// reason saying why.
DeviceChoice choose_device(std::optional<Device> asked, const GpuDiscovery& found, DoesNotFit does_not_fit);

}  // namespace heddle
