// Collectives captured in CUDA graphs. Compiled in builds with CUDA alone.
#include <cuda_runtime_api.h>

#include "base/copy.h"
#include "base/error.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/cases.h"
#include "collectives/payload.h"

namespace heddle {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw_error<Failure>("{}: {}", what, cudaGetErrorString(error));
}

}  // namespace

// The sum of all inputs by each algorithm, one after the other, then the first sums of all ranks gathered.
std::string run_graphs(Communicator& communicator, Stream& stream, std::uint32_t seed) {
  constexpr std::size_t kCount = 5000, kBytes = kCount * sizeof(float);
  constexpr int kReplays = 60;
  constexpr Choice kChoices[] = {{Algorithm::low_latency, 3, 256},
                                 {Algorithm::two_phase, 8, 128},
                                 {Algorithm::direct, 5},
                                 {Algorithm::pipelined, 9}};
  constexpr std::size_t kSums = std::size(kChoices);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  Fabric& fabric = communicator.fabric();
  Buffer all(ranks * kBytes, fabric.device());
  std::byte* const in = fabric.allocate(kBytes).data;  // symmetric, as pipelined wants it
  std::byte* const sums = fabric.allocate(kSums * kBytes).data;
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "begin of a capture");
  for (std::size_t i = 0; i < kSums; ++i) {
    communicator.force(kChoices[i]);
    all_reduce(communicator, {in, sums + i * kBytes, kCount, DType::float32, Memory::symmetric}, stream);
  }
  communicator.force(kChoices[0]);
  all_gather(communicator, {sums, all.data(), kCount, DType::float32}, stream);
  check(cudaStreamEndCapture(native, &graph), "end of a capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  check(cudaGraphUpload(executable, native), "uploading a graph");
  fabric.synchronize(stream);
  fabric.meet();  // nothing is allocated from here on
  std::string wrong;
  for (int replay = 0; replay < kReplays; ++replay) {
    std::vector<Bits> inputs;
    for (int p = 0; p < communicator.size(); ++p)
      inputs.push_back(payload(DType::float32, kCount, p, seed + static_cast<std::uint32_t>(replay)));
    enqueue_copy(stream, in, inputs[static_cast<std::size_t>(communicator.rank())].data(), kBytes);
    for (int again = 0; again <= replay % 3; ++again) check(cudaGraphLaunch(executable, native), "replaying a graph");
    fabric.synchronize(stream);
    Bits got((kSums + ranks) * kBytes);
    enqueue_copy(stream, got.data(), sums, kSums * kBytes);
    enqueue_copy(stream, got.data() + kSums * kBytes, all.data(), ranks * kBytes);
    fabric.synchronize(stream);
    Bits want;
    const Bits sum = sum_in_rank_order(DType::float32, inputs);
    for (std::size_t i = 0; i < kSums + ranks; ++i) want.insert(want.end(), sum.begin(), sum.end());
    if (const std::ptrdiff_t at = first_difference(DType::float32, got, want); at >= 0 && wrong.empty())
      wrong = fmt::format("graph, replay {}: number {} is wrong at element {} on rank {}", replay,
                          at / static_cast<std::ptrdiff_t>(kCount), at % static_cast<std::ptrdiff_t>(kCount),
                          communicator.rank());
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  all = Buffer();  // freed before anybody waits again
  fabric.meet();
  return wrong;
}

}  // namespace heddle
