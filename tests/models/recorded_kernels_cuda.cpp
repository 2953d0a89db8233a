#include "models/recorded_kernels.h"

#include <cuda_runtime_api.h>

#include "base/cuda_call.h"

namespace heddle {
namespace {

// Empty for what is no kernel, and for a kernel that this program's CUDA runtime did not load.
std::string kernel_name(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  if (type != cudaGraphNodeTypeKernel) return "";
  cudaKernelNodeParams params{};
  const char* name = nullptr;
  const bool known =
      cudaGraphKernelNodeGetParams(node, &params) == cudaSuccess && cudaFuncGetName(&name, params.func) == cudaSuccess;
  cudaGetLastError();
  return known ? name : "";
}

std::vector<std::string> kernels_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  std::vector<std::string> names;
  for (cudaGraphNode_t node : nodes)
    if (std::string name = kernel_name(node); !name.empty()) names.push_back(std::move(name));
  return names;
}

}  // namespace

std::vector<std::string> recorded_kernels(Stream& stream, FunctionRef<void()> enqueue) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue();
  check_cuda(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  std::vector<std::string> names = kernels_of(graph);
  cudaGraphDestroy(graph);
  return names;
}

}  // namespace heddle
