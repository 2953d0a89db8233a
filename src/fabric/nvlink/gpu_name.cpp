#include "fabric/nvlink/gpu_name.h"

#include "base/cuda_call.h"

namespace heddle {

GpuName gpu_name(int device) {
  GpuName name;
  check_cuda(cudaDeviceGetPCIBusId(name.text, sizeof(name.text), device), "cudaDeviceGetPCIBusId");
  return name;
}

int device_named(const GpuName& name) {
  int device = -1;
  if (cudaDeviceGetByPCIBusId(&device, name.text) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

}  // namespace heddle
