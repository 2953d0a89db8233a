#include "models/recorded_kernels.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>

#include "base/cuda_call.h"
#include "base/deadline.h"

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

cudaGraph_t recorded(Stream& stream, FunctionRef<void()> enqueue) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue();
  check_cuda(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  return graph;
}

template <class Function>
Function of_driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12040, cudaEnableDefault, &result), name);
  return reinterpret_cast<Function>(found);
}

// Of a kernel of any library, as the driver has it.
std::string shape_of(cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (of_driver<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams")(node, &params) != CUDA_SUCCESS)
    return "a kernel that the driver does not describe";
  const char* name = "?";
  if (params.func != nullptr)
    of_driver<decltype(&cuFuncGetName)>("cuFuncGetName")(&name, params.func);
  else
    of_driver<decltype(&cuKernelGetName)>("cuKernelGetName")(&name, params.kern);
  CUlaunchAttributeValue cluster{};
  of_driver<decltype(&cuGraphKernelNodeGetAttribute)>("cuGraphKernelNodeGetAttribute")(
      node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
  return fmt::format("{} with {} x {} x {} blocks of {} threads, clusters of {} x {}", name, params.gridDimX,
                     params.gridDimY, params.gridDimZ, params.blockDimX, cluster.clusterDim.x, cluster.clusterDim.y);
}

// What is left of `graph` when all but its node number `kept` are gone, or nullptr where that is no kernel.
cudaGraphExec_t alone(cudaGraph_t graph, std::size_t kept) {
  cudaGraph_t copy = nullptr;
  check_cuda(cudaGraphClone(&copy, graph), "cudaGraphClone");
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(copy, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(copy, nodes.data(), &count), "cudaGraphGetNodes");
  cudaGraphNodeType type{};
  check_cuda(cudaGraphNodeGetType(nodes[kept], &type), "cudaGraphNodeGetType");
  cudaGraphExec_t made = nullptr;
  if (type == cudaGraphNodeTypeKernel) {
    for (std::size_t i = 0; i < count; ++i)
      if (i != kept) check_cuda(cudaGraphDestroyNode(nodes[i]), "cudaGraphDestroyNode");
    check_cuda(cudaGraphInstantiate(&made, copy, 0), "cudaGraphInstantiate");
  }
  cudaGraphDestroy(copy);
  return made;
}

bool ends_soon(cudaStream_t stream) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(3));
  cudaError_t state = cudaSuccess;
  while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady && !deadline.passed()) std::this_thread::yield();
  if (state != cudaErrorNotReady) check_cuda(state, "cudaStreamQuery");
  return state == cudaSuccess;
}

}  // namespace

std::vector<RecordedKernel> recorded_kernels(Stream& stream, FunctionRef<void()> enqueue) {
  cudaGraph_t const graph = recorded(stream, enqueue);
  std::vector<RecordedKernel> kernels = kernels_of(graph);
  cudaGraphDestroy(graph);
  return kernels;
}

std::string first_that_waits(Stream& stream, FunctionRef<void()> enqueue) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t const graph = recorded(stream, enqueue);
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  std::string waits;
  for (std::size_t i = 0; i < count && waits.empty(); ++i) {
    cudaGraphExec_t const one = alone(graph, i);
    if (one == nullptr) continue;
    check_cuda(cudaGraphLaunch(one, native), "cudaGraphLaunch");
    if (!ends_soon(native)) waits = shape_of(nodes[i]);
    cudaGraphExecDestroy(one);
  }
  cudaGraphDestroy(graph);
  return waits;
}

}  // namespace heddle
