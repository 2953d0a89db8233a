// GPUs by a name that all processes of a machine agree on, whatever each may see and in whatever order.
#pragma once

namespace heddle {

struct GpuName {
  char text[20] = {};  // of the PCI bus, "0000:1b:00.0"
};

GpuName gpu_name(int device);  // throws Failure when there is no such device

// The device of that name here, or -1 where this process does not see it.
int device_named(const GpuName& name);

}  // namespace heddle
