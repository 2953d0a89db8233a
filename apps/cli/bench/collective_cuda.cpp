// bench collective: timing on GPUs.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/error.h"
#include "cli/bench/collective.h"
#include "cli/bench/interleave.h"
#include "collectives/barrier.h"

namespace heddle {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw_error<Failure>("bench collective: CUDA says: {}", cudaGetErrorString(error));
}

class TimedGraph {
 public:
  TimedGraph(Communicator& communicator, Stream& stream, int calls, std::span<std::byte> cache,
             FunctionRef<void(int)> call)
      : stream_(static_cast<cudaStream_t>(stream.native())) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    if (!cache.empty()) check(cudaMemsetAsync(cache.data(), 0, cache.size(), stream_));
    barrier(communicator, stream);
    check(cudaEventRecordWithFlags(begin_, stream_, cudaEventRecordExternal));
    for (int i = 0; i < calls; ++i) call(i);
    check(cudaEventRecordWithFlags(end_, stream_, cudaEventRecordExternal));
    check(cudaStreamEndCapture(stream_, &graph_));
    check(cudaGraphInstantiate(&executable_, graph_, 0));
    check(cudaGraphUpload(executable_, stream_));
  }
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;
  ~TimedGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  void launch() { check(cudaGraphLaunch(executable_, stream_)); }

  // Of the last launch, which must have completed.
  double seconds() const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  // Uses the driver API: the runtime does not know NCCL's kernels.
  int most_blocks() const {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned int kSince = 12000;
    if (cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", &function, kSince, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
      cudaGetLastError();
      return 0;
    }
    const auto params_of = reinterpret_cast<decltype(&cuGraphKernelNodeGetParams)>(function);
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(graph_, nodes.data(), &count));
    unsigned int most = 0;
    for (cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      CUDA_KERNEL_NODE_PARAMS params{};
      if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeKernel) continue;
      if (params_of(node, &params) == CUDA_SUCCESS)
        most = std::max(most, params.gridDimX * params.gridDimY * params.gridDimZ);
    }
    return static_cast<int>(most);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// Calls that the host launches, timed in the same way.
class TimedCalls {
 public:
  TimedCalls(Communicator& communicator, Stream& stream, int calls, const std::function<void()>& call)
      : communicator_(communicator), stream_(stream), calls_(calls), call_(call) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  TimedCalls(const TimedCalls&) = delete;
  TimedCalls& operator=(const TimedCalls&) = delete;
  ~TimedCalls() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  void launch() {
    auto* const stream = static_cast<cudaStream_t>(stream_.native());
    barrier(communicator_, stream_);
    check(cudaEventRecord(begin_, stream));
    for (int i = 0; i < calls_; ++i) call_();
    check(cudaEventRecord(end_, stream));
  }

  // As TimedGraph's.
  double seconds() const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3;
  }
  static int most_blocks() { return 0; }

 private:
  Communicator& communicator_;
  Stream& stream_;
  int calls_;
  const std::function<void()>& call_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Of what make(i) returns, which may be graphs; they go before the ranks part.
template <class Make>
std::vector<GraphSamples> samples_of(Communicator& communicator, Stream& stream, int calls, int samples,
                                     std::size_t num_graphs, const Make& make) {
  check(cudaSetDevice(stream.device().index));
  Fabric& fabric = communicator.fabric();
  std::vector<GraphSamples> measured(num_graphs);
  {
    std::vector<decltype(make(std::size_t{}))> graphs;
    for (std::size_t i = 0; i < num_graphs; ++i) {
      graphs.push_back(make(i));
      measured[i].blocks = graphs[i]->most_blocks();
    }
    fabric.synchronize(stream);
    fabric.meet();
    for (int sample = -2; sample < samples; ++sample)  // two warm-up samples
      for (std::size_t turn = 0; turn < num_graphs; ++turn) {
        const std::size_t i = interleaved(sample, turn, num_graphs);
        graphs[i]->launch();
        fabric.synchronize(stream);
        if (sample >= 0) measured[i].seconds.push_back(graphs[i]->seconds() / calls);
      }
  }
  fabric.meet();
  return measured;
}

}  // namespace

GraphSamples graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                           std::span<std::byte> cache, FunctionRef<void(int)> call) {
  return samples_of(communicator, stream, calls, samples, 1,
                    [&](std::size_t) { return std::make_unique<TimedGraph>(communicator, stream, calls, cache, call); })
      .front();
}

std::vector<GraphSamples> interleaved_graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                                                    std::span<const std::function<void()>> each) {
  return samples_of(communicator, stream, calls, samples, each.size(), [&](std::size_t i) {
    const auto call = [&](int) { each[i](); };
    return std::make_unique<TimedGraph>(communicator, stream, calls, std::span<std::byte>{}, call);
  });
}

std::vector<GraphSamples> interleaved_host_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                                                   std::span<const std::function<void()>> each) {
  return samples_of(communicator, stream, calls, samples, each.size(),
                    [&](std::size_t i) { return std::make_unique<TimedCalls>(communicator, stream, calls, each[i]); });
}

}  // namespace heddle
