// Names of GPUs that are the same in all processes of a machine, whatever devices each process sees.
#pragma once

namespace heddle {

struct GpuName {
  char text[20] = {};  // of the PCI bus, "0000:1b:00.0"
};

GpuName gpu_name(int device);  // throws Failure when there is no such device

// The device of that name, or -1 if this process does not see it.
int device_named(const GpuName& name);

}  // namespace heddle
