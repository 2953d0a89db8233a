// Timing on a GPU.
#include <memory>

#include "base/cuda_call.h"
#include "cli/bench/device.h"

namespace heddle {
namespace {

void check_bench(cudaError_t error) {
  if (error != cudaSuccess) throw_cuda_error("bench", error);
}

// Calls between two events, in one graph.
class CallGraph {
 public:
  CallGraph(Stream& stream, int calls, const std::function<void(int)>& call)
      : stream_(static_cast<cudaStream_t>(stream.native())) {
    check_bench(cudaEventCreate(&begin_));
    check_bench(cudaEventCreate(&end_));
    check_bench(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    try {
      check_bench(cudaEventRecordWithFlags(begin_, stream_, cudaEventRecordExternal));
      for (int i = 0; i < calls; ++i) call(i);
      check_bench(cudaEventRecordWithFlags(end_, stream_, cudaEventRecordExternal));
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph_);  // or the stream would be unusable, and could not even be destroyed
      cudaGetLastError();
      release();
      throw;
    }
    check_bench(cudaStreamEndCapture(stream_, &graph_));
    check_bench(cudaGraphInstantiate(&executable_, graph_, 0));
    check_bench(cudaGraphUpload(executable_, stream_));
  }
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;
  ~CallGraph() { release(); }

  void launch() { check_bench(cudaGraphLaunch(executable_, stream_)); }

  double seconds() const {  // of the last launch, which must have completed
    float milliseconds = 0;
    check_bench(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  void release() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::function<double()> graph_timer(Stream& stream, int calls, const std::function<void(int)>& call) {
  check_bench(cudaSetDevice(stream.device().index));
  return [graph = std::make_shared<CallGraph>(stream, calls, call), &stream, calls] {
    graph->launch();
    stream.synchronize();
    return graph->seconds() / calls;
  };
}

}  // namespace heddle
