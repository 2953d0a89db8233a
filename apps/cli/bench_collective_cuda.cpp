// bench collective: how it is timed on GPUs.
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "cli/bench_collective.h"
#include "collectives/barrier.h"

namespace heddle {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw_error<Failure>("bench collective: CUDA says: {}", cudaGetErrorString(error));
}

}  // namespace

std::vector<double> graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                                  FunctionRef<void(int)> call) {
  check(cudaSetDevice(stream.device().index));
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) call(i);
  check(cudaStreamEndCapture(native, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int sample = -2; sample < samples; ++sample) {  // two to warm up
    barrier(communicator, stream);
    check(cudaEventRecord(begin, native));
    check(cudaGraphLaunch(executable, native));
    check(cudaEventRecord(end, native));
    communicator.fabric().synchronize(stream);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (sample >= 0) seconds.push_back(static_cast<double>(milliseconds) * 1e-3 / calls);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  return seconds;
}

}  // namespace heddle
