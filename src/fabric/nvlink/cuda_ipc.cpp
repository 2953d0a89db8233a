// Peer memory by plain CUDA: one allocation per rank, whose IPC handle goes to other processes; threads of one process
// use each other's allocations directly.
#include <array>
#include <cstring>
#include <random>

#include "base/checked.h"
#include "base/cuda_call.h"
#include "fabric/nvlink/gpu_name.h"
#include "fabric/nvlink/peer_memory.h"

namespace heddle {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;  // a smaller allocation would share its handle with others

// A key that the threads of a process share and that differs between processes, even of two containers.
std::uint64_t process_key() {
  static const std::uint64_t key = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return key;
}

struct Offer {
  std::uint64_t process;
  std::byte* data;
  GpuName gpu;
  cudaIpcMemHandle_t handle;
};

class CudaIpc final : public PeerMemory {
 public:
  explicit CudaIpc(const PeerMemoryRequest& request) : exchange_(*request.exchange), device_(request.device) {
    const CurrentDevice current(device_);
    const std::size_t bytes = round_up(request.size_bytes, kGranularity);
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc of the fabric's heap");
    own_ = static_cast<std::byte*>(memory);
    try {
      check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    } catch (...) {
      cudaFree(own_);
      throw;
    }
  }

  ~CudaIpc() override {
    on_device([this] { cudaFree(own_); });
  }

  void map() override {
    const CurrentDevice current(device_);
    Offer mine{process_key(), own_, gpu_name(device_), {}};
    check_cuda(cudaIpcGetMemHandle(&mine.handle, own_), "cudaIpcGetMemHandle");
    for (const Offer& offer : exchange_.gather(exchange_.world(), mine, "IPC handles")) heaps_.push_back(reach(offer));
    exchange_.meet(exchange_.world(), "heaps mapped");  // who writes first finds everybody ready
  }

  void close() override { unmap(); }
  void abandon() override { unmap(); }

 private:
  std::byte* reach(const Offer& offer) {
    const int peer = static_cast<int>(heaps_.size());
    if (peer == exchange_.rank()) return own_;
    if (offer.process != process_key()) {
      void* memory = nullptr;
      if (const cudaError_t error = cudaIpcOpenMemHandle(&memory, offer.handle, cudaIpcMemLazyEnablePeerAccess);
          error != cudaSuccess) {
        cudaGetLastError();
        throw_error<Failure>("rank {} on cuda:{} cannot map the memory of rank {} on GPU {}: {}", exchange_.rank(),
                             device_, peer, offer.gpu.text, cudaGetErrorString(error));
      }
      mapped_.push_back(memory);
      return static_cast<std::byte*>(memory);
    }
    if (const int device = device_named(offer.gpu); device != device_) {
      const cudaError_t error = cudaDeviceEnablePeerAccess(device, 0);
      cudaGetLastError();  // another fabric of this process may have enabled it
      if (error != cudaErrorPeerAccessAlreadyEnabled) check_cuda(error, "cudaDeviceEnablePeerAccess");
    }
    return offer.data;
  }

  void unmap() {
    on_device([this] {
      for (void* memory : mapped_) cudaIpcCloseMemHandle(memory);
    });
    mapped_.clear();
  }

  // Runs an action in a function that must not throw.
  template <class Action>
  void on_device(const Action& action) {
    int former = 0;
    cudaGetDevice(&former);
    cudaSetDevice(device_);
    action();
    cudaSetDevice(former);
  }

  HostExchange& exchange_;
  int device_;
  std::byte* own_ = nullptr;
  std::vector<void*> mapped_;
};

}  // namespace

std::unique_ptr<PeerMemory> cuda_ipc(const PeerMemoryRequest& request) {
  return std::make_unique<CudaIpc>(request);
}

}  // namespace heddle
