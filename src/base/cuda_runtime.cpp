#include "base/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include <thread>

#include "base/error.h"

namespace heddle::cuda {
namespace {

// CUDA remembers an error until somebody asks, and the next launch's check would report it as its own; so ask.
void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw_error<Failure>("CUDA: {}: {}", call, cudaGetErrorString(error));
}

// Makes `device` the current one of this thread, and the former one again.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cudaGetDevice(&former_);
    check(cudaSetDevice(device), "cudaSetDevice");
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() { cudaSetDevice(former_); }

 private:
  int former_ = 0;
};

// Polls until `query` no longer says "not ready": CUDA's own waits know no deadline.
template <class Query>
void wait_until_ready(Query query, const char* call, Deadline deadline) {
  while (true) {
    const cudaError_t state = query();
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, call);
    cudaGetLastError();
    if (deadline.passed()) throw_error<Timeout>("CUDA: {}: not done at the deadline", call);
    std::this_thread::yield();
  }
}

}  // namespace

void* create_stream(int device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void destroy_stream(void* stream) {
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));  // a destructor has nobody to report an error to
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void synchronize_stream(void* stream, Deadline deadline) {
  wait_until_ready([&] { return cudaStreamQuery(static_cast<cudaStream_t>(stream)); }, "cudaStreamQuery", deadline);
}

void stream_wait_event(void* stream, void* event) {
  check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event)), "cudaStreamWaitEvent");
}

void* create_event(int device) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

void destroy_event(void* event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record_event(void* event, void* stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
}

void synchronize_event(void* event, Deadline deadline) {
  wait_until_ready([&] { return cudaEventQuery(static_cast<cudaEvent_t>(event)); }, "cudaEventQuery", deadline);
}

void* allocate(int device, std::size_t size_bytes) {
  const DeviceGuard guard(device);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size_bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    throw_error<Failure>("cuda:{}: cannot allocate {} bytes, {} of {} are free", device, size_bytes, free, total);
  }
  check(error, "cudaMalloc");
  return memory;
}

void release(int device, void* memory) {
  int former = 0;
  cudaGetDevice(&former);
  cudaSetDevice(device);
  cudaFree(memory);
  cudaSetDevice(former);
}

void copy(void* destination, const void* source, std::size_t size_bytes, void* stream) {
  check(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
        "cudaMemcpyAsync");
}

void clear(void* memory, std::size_t size_bytes, void* stream) {
  check(cudaMemsetAsync(memory, 0, size_bytes, static_cast<cudaStream_t>(stream)), "cudaMemsetAsync");
}

void pin(void* memory, std::size_t size_bytes) {
  const cudaError_t error = cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_error<Failure>("cannot pin {} bytes of host memory", size_bytes);
  }
  check(error, "cudaHostRegister");
}

void unpin(void* memory) {
  cudaHostUnregister(memory);
}

MemoryInfo memory_info(int device) {
  const DeviceGuard guard(device);
  MemoryInfo info;
  check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
}

void begin_capture(void* stream) {
  check(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}

void* end_capture(void* stream) {
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, captured, 0);
  cudaGraphDestroy(captured);
  check(error, "cudaGraphInstantiate");
  return graph;
}

void abandon_capture(void* stream) {
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured);
  if (captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();
}

void launch_graph(void* graph, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)), "cudaGraphLaunch");
}

void destroy_graph(void* graph) {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace heddle::cuda
