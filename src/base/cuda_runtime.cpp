#include "base/cuda_runtime.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda_call.h"

namespace heddle {
namespace {

// A broken context returns the error that broke it from every call.
bool is_broken_by(cudaError_t error) {
  std::size_t free = 0;
  std::size_t total = 0;
  const cudaError_t again = cudaMemGetInfo(&free, &total);
  cudaGetLastError();
  return again == error;
}

}  // namespace

void throw_cuda_error(std::string_view what, cudaError_t error) {
  cudaGetLastError();
  if (is_broken_by(error))
    throw_error<LostDevice>(
        "{}: {}; this process can use its GPU no more. `nvidia-smi` and the kernel's log (`dmesg | grep -i xid`) may "
        "say why; start again, or with --device cpu",
        what, cudaGetErrorString(error));
  throw_error<Failure>("{}: {}", what, cudaGetErrorString(error));
}

namespace cuda {
namespace {

// Set when a wait of this process has passed its deadline. Destructors then return at once and leave their memory to
// the end of the process: freeing it would wait for the same work, without a deadline.
std::atomic<bool> work_does_not_end = false;

// Polls until `query` no longer returns "not ready": CUDA's own waits have no deadline.
template <class Query>
void wait_until_ready(Query query, const char* call, Deadline deadline) {
  while (true) {
    const cudaError_t state = query();
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, call);
    cudaGetLastError();
    if (deadline.passed()) {
      work_does_not_end = true;
      throw_error<Timeout>(
          "CUDA: {}: what the GPU was given has not ended by the deadline; `nvidia-smi` and the kernel's log "
          "(`dmesg | grep -i xid`) may say why",
          call);
    }
    std::this_thread::yield();
  }
}

// CUDA gives streams a device's hardware queues in turn, and where two streams share one, a kernel that waits for a peer
// delays the other's. So streams that are no longer used are kept for the next: a process that never has more streams
// at a time than there are queues shares none.
class IdleStreams {
 public:
  cudaStream_t take(int device, int priority) {
    const std::scoped_lock lock(mutex_);
    std::vector<cudaStream_t>& idle = idle_[{device, priority}];
    if (idle.empty()) return nullptr;
    const cudaStream_t stream = idle.back();
    idle.pop_back();
    return stream;
  }

  void keep(int device, cudaStream_t stream) {
    int priority = 0;
    if (cudaStreamGetPriority(stream, &priority) != cudaSuccess) return;
    const std::scoped_lock lock(mutex_);
    idle_[{device, priority}].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::vector<cudaStream_t>> idle_;  // by device and priority
};

// Never destroyed: streams of static objects end after it would be.
IdleStreams& idle_streams() {
  static IdleStreams* const streams = new IdleStreams;
  return *streams;
}

}  // namespace

void* create_stream(int device, StreamPriority priority) {
  const CurrentDevice guard(device);
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  const int chosen = priority == StreamPriority::high ? highest : 0;
  cudaStream_t stream = idle_streams().take(device, chosen);
  if (stream != nullptr) return stream;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, chosen), "cudaStreamCreateWithPriority");
  return stream;
}

void destroy_stream(int device, void* stream) {
  if (work_does_not_end) return;
  const auto native = static_cast<cudaStream_t>(stream);
  if (cudaStreamSynchronize(native) == cudaSuccess)
    idle_streams().keep(device, native);
  else
    cudaStreamDestroy(native);  // a destructor cannot report the error
}

void synchronize_stream(void* stream, Deadline deadline) {
  wait_until_ready([&] { return cudaStreamQuery(static_cast<cudaStream_t>(stream)); }, "cudaStreamQuery", deadline);
}

void stream_wait_event(void* stream, void* event) {
  check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event)),
             "cudaStreamWaitEvent");
}

void* create_event(int device) {
  const CurrentDevice guard(device);
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

void destroy_event(void* event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record_event(void* event, void* stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
}

void synchronize_event(void* event, Deadline deadline) {
  wait_until_ready([&] { return cudaEventQuery(static_cast<cudaEvent_t>(event)); }, "cudaEventQuery", deadline);
}

void* allocate(int device, std::size_t size_bytes) {
  const CurrentDevice guard(device);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size_bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    throw_error<Failure>("cuda:{}: cannot allocate {} bytes, {} of {} are free", device, size_bytes, free, total);
  }
  check_cuda(error, "cudaMalloc");
  return memory;
}

void release(int device, void* memory) {
  if (work_does_not_end) return;
  int former = 0;
  cudaGetDevice(&former);
  cudaSetDevice(device);
  cudaFree(memory);
  cudaSetDevice(former);
}

void copy(void* destination, const void* source, std::size_t size_bytes, void* stream) {
  check_cuda(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
             "cudaMemcpyAsync");
}

void clear(int device, void* memory, std::size_t size_bytes, void* stream) {
  const CurrentDevice guard(device);
  check_cuda(cudaMemsetAsync(memory, 0, size_bytes, static_cast<cudaStream_t>(stream)), "cudaMemsetAsync");
}

void pin(void* memory, std::size_t size_bytes) {
  const cudaError_t error = cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_error<Failure>("cannot pin {} bytes of host memory", size_bytes);
  }
  check_cuda(error, "cudaHostRegister");
}

void unpin(void* memory) {
  if (work_does_not_end) return;
  cudaHostUnregister(memory);
}

// Threads that come at once all ask, and all get the same answer.
int num_sms(int device) {
  constexpr std::size_t kRemembered = 64;  // devices
  static std::array<std::atomic<int>, kRemembered> counts{};
  const auto index = static_cast<std::size_t>(device);
  if (index < kRemembered)
    if (const int known = counts[index].load(std::memory_order_relaxed); known > 0) return known;
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  if (index < kRemembered) counts[index].store(count, std::memory_order_relaxed);
  return count;
}

MemoryInfo memory_info(int device) {
  const CurrentDevice guard(device);
  MemoryInfo info;
  check_cuda(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
}

void begin_capture(void* stream) {
  check_cuda(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

void* end_capture(void* stream) {
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, captured, 0);
  cudaGraphDestroy(captured);
  check_cuda(error, "cudaGraphInstantiate");
  // Its memory on the GPU is taken now, not by the first launch, which may have to wait for another rank's kernel.
  if (const cudaError_t uploaded = cudaGraphUpload(graph, static_cast<cudaStream_t>(stream)); uploaded != cudaSuccess) {
    cudaGraphExecDestroy(graph);
    check_cuda(uploaded, "cudaGraphUpload");
  }
  return graph;
}

void abandon_capture(void* stream) {
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured);
  if (captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();
}

void launch_graph(void* graph, void* stream) {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)),
             "cudaGraphLaunch");
}

void destroy_graph(void* graph) {
  if (work_does_not_end) return;
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace cuda
}  // namespace heddle
