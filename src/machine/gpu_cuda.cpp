#include "machine/gpu_cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace heddle::cuda {
namespace {

// CUDA encodes versions as 1000 * major + 10 * minor.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

GpuInfo describe(int device, int num_devices) {
  GpuInfo gpu;
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) {
    gpu.name = fmt::format("unknown ({})", cudaGetErrorString(error));
    return gpu;
  }
  gpu.name = properties.name;
  gpu.compute_major = properties.major;
  gpu.compute_minor = properties.minor;
  gpu.num_sms = properties.multiProcessorCount;
  gpu.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  gpu.l2_cache_bytes = properties.l2CacheSize;
  // Both edges of the clock carry data; kHz x bits / 8 = kB/s.
  gpu.memory_bandwidth_gbps = 2.0 * attribute(cudaDevAttrMemoryClockRate, device) *
                              attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8 / 1e6;
  for (int peer = 0; peer < num_devices; ++peer) {
    int reaches = 0;
    if (peer != device && cudaDeviceCanAccessPeer(&reaches, device, peer) == cudaSuccess && reaches != 0)
      gpu.peers.push_back(peer);
  }
  return gpu;
}

}  // namespace

GpuDiscovery discover_gpus() {
  GpuDiscovery found;
  found.runtime_version = version_text(CUDART_VERSION);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) found.driver_version = version_text(driver);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    found.why_none = error == cudaErrorInsufficientDriver && driver > 0
                         ? fmt::format("the NVIDIA driver is too old: it knows CUDA {}, this build needs {}",
                                       found.driver_version, found.runtime_version)
                         : fmt::format("CUDA: {}", cudaGetErrorString(error));
    cudaGetLastError();  // clears the error; the next kernel launch would report it
    return found;
  }
  if (count == 0) found.why_none = "CUDA finds no device";
  for (int device = 0; device < count; ++device) found.gpus.push_back(describe(device, count));
  return found;
}

}  // namespace heddle::cuda
