// For sources that call CUDA: its errors as exceptions, and the current device. Includes CUDA's headers, so no header that
// other rooms' C++ reads may include it.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace heddle {

// Throws Failure: `what` and CUDA's own words; LostDevice where the process's context on its GPU is broken (a fault in
// a kernel, a GPU that fell off the bus) and no later call can succeed, with what to look at and what to do. CUDA
// remembers an error until somebody asks, and the next launch's check would report it as its own; so this asks.
[[noreturn]] void throw_cuda_error(std::string_view what, cudaError_t error);

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    throw_cuda_error(fmt::format("CUDA: {}", call), error);
}

// Makes `device` the current one of this thread, and the former one again.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    cudaGetDevice(&former_);
    if (former_ != device) check_cuda(cudaSetDevice(device), "cudaSetDevice");
    device_ = device;
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (former_ != device_) cudaSetDevice(former_);
  }

 private:
  int former_ = 0;
  int device_ = 0;
};

}  // namespace heddle
