#include <nccl_device.h>

#include "base/cuda_call.h"
#include "device/peers.h"
#include "fabric/nvlink/nccl_window.h"

namespace heddle {
namespace {

__global__ void addresses_kernel(ncclWindow_t window, int size, std::byte** addresses) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < size) addresses[peer] = static_cast<std::byte*>(ncclGetLsaPointer(window, 0, peer));
}

}  // namespace

std::vector<std::byte*> window_addresses(ncclWindow_t window, int size) {
  require(size >= 1 && size <= kMaxPeers, "a window over {} ranks", size);
  std::vector<std::byte*> heaps(static_cast<std::size_t>(size));
  const std::size_t bytes = heaps.size() * sizeof(std::byte*);
  void* addresses = nullptr;
  check_cuda(cudaMalloc(&addresses, bytes), "cudaMalloc");
  // Not by launch_sm90(): the rank has no stream yet, and this runs once.
  addresses_kernel<<<1, kMaxPeers>>>(window, size, static_cast<std::byte**>(addresses));
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t copied = cudaMemcpy(heaps.data(), addresses, bytes, cudaMemcpyDeviceToHost);
  cudaFree(addresses);
  check_cuda(launched, "the addresses of NCCL's window");
  check_cuda(copied, "the addresses of NCCL's window");
  return heaps;
}

}  // namespace heddle
