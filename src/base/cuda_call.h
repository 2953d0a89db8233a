// For sources that call CUDA: turns CUDA's errors into exceptions, and sets the current device. Includes CUDA's
// headers, so headers that other modules' C++ reads must not include it.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace heddle {

// Throws Failure with `what` and CUDA's message. Throws LostDevice, with advice, where the process's context on its GPU
// is broken (a fault in a kernel, a GPU that fell off the bus) and no later call can succeed. Also clears CUDA's last
// error, which the check of the next launch would report otherwise.
[[noreturn]] void throw_cuda_error(std::string_view what, cudaError_t error);

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    throw_cuda_error(fmt::format("CUDA: {}", call), error);
}

// Makes `device` the current one of this thread for its lifetime, then restores the former one.
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
