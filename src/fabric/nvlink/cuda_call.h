// For the sources of this folder: CUDA's errors as exceptions, and the current device. Includes CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace heddle {

// Throws Failure in CUDA's own words. CUDA remembers an error until somebody asks, and the next launch's check would
// report it as its own; so ask.
inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw_error<Failure>("CUDA: {}: {}", call, cudaGetErrorString(error));
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
