#include "models/recorded_kernels.h"

#include <cuda_runtime_api.h>

#include "base/cuda_call.h"

namespace heddle {
namespace {

// Without a name for what is no kernel, and for a kernel that this program's CUDA runtime did not load.
RecordedKernel kernel_of(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  if (type != cudaGraphNodeTypeKernel) return {};
  cudaKernelNodeParams params{};
  const char* name = nullptr;
  const bool known =
      cudaGraphKernelNodeGetParams(node, &params) == cudaSuccess && cudaFuncGetName(&name, params.func) == cudaSuccess;
  cudaGetLastError();
  if (!known) return {};
  RecordedKernel kernel{.name = name,
                        .blocks = static_cast<int>(params.gridDim.x * params.gridDim.y * params.gridDim.z)};
  cudaLaunchAttributeValue value{};
  check_cuda(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
             "cudaGraphKernelNodeGetAttribute");
  if (value.clusterDim.x > 1) kernel.cluster = static_cast<int>(value.clusterDim.x);
  const auto threads = static_cast<int>(params.blockDim.x * params.blockDim.y * params.blockDim.z);
  check_cuda(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&kernel.blocks_of_sm, params.func, threads, params.sharedMemBytes),
      "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return kernel;
}

std::vector<RecordedKernel> kernels_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  std::vector<RecordedKernel> kernels;
  for (cudaGraphNode_t node : nodes)
    if (RecordedKernel kernel = kernel_of(node); !kernel.name.empty()) kernels.push_back(std::move(kernel));
  return kernels;
}

}  // namespace

std::vector<RecordedKernel> recorded_kernels(Stream& stream, FunctionRef<void()> enqueue) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue();
  check_cuda(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  std::vector<RecordedKernel> kernels = kernels_of(graph);
  cudaGraphDestroy(graph);
  return kernels;
}

}  // namespace heddle
