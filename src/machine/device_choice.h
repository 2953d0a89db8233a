// Chooses the device a model runs on: the one the user names, or the best one available.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "base/function_ref.h"
#include "machine/gpu.h"

namespace heddle {

// "cpu", "cuda" (GPU 0) and "cuda:N"; nothing for any other text.
std::optional<Device> device_named(std::string_view name);

// A sentence that says why GPU `index` cannot run Heddle's kernels; empty: it can.
std::string why_unusable(const GpuDiscovery& found, int index);

struct DeviceChoice {
  Device device;
  std::string reason;  // one line: "asked for", or what was found
};

// A sentence that says why a model does not fit into a device's memory; empty: it fits.
using DoesNotFit = FunctionRef<std::string(Device)>;

// With `asked`: throws InputError when there are fewer GPUs, and Failure when there is no GPU, when it cannot run
// Heddle's kernels, or when the model does not fit. Without: the first usable GPU that the model fits, else the CPU;
// the reason says why.
DeviceChoice choose_device(std::optional<Device> asked, const GpuDiscovery& found, DoesNotFit does_not_fit);

// "cuda:0,cuda:1": devices as device_named reads them, parted by commas; empty for any other text.
std::vector<Device> devices_named(std::string_view names);

// Where the ranks of one model run, rank by rank. `asked`: what the user has named, as typed; empty: nothing.
//   - nothing, or cuda: the first GPUs, one a rank; with nothing the CPU if there are fewer usable ones
//   - cpu: all ranks on the CPU
//   - a device for each rank: several ranks may share a GPU
// Throws InputError for anything else, for a GPU that is not there, and for fewer GPUs than ranks: it names the devices to
// ask for. Throws Failure when there is no GPU, or when it cannot run Heddle's kernels.
struct RankDevices {
  std::vector<Device> devices;  // [ranks]
  std::string reason;           // one line
};
RankDevices choose_rank_devices(std::string_view asked, int ranks, const GpuDiscovery& found);

// Throws InputError for more than one device, which needs as many ranks.
void require_one_device(std::string_view asked);

}  // namespace heddle
