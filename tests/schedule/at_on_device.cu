#include "schedule/at_on_device.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "schedule/all_to_all.h"
#include "schedule/k_tree.h"
#include "schedule/ring.h"
#include "schedule/torus.h"
#include "schedule/tree.h"
#include "schedule/two_hop.h"

namespace heddle::schedule {
namespace {

template <class S>
__global__ void record(const __grid_constant__ S schedule, Transfer* at) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < schedule.size * schedule.steps()) at[i] = schedule.at(i / schedule.steps(), i % schedule.steps());
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace

template <class S>
std::vector<Transfer> at_on_device(const S& schedule) {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) return {};
  std::vector<Transfer> at(static_cast<std::size_t>(schedule.size * schedule.steps()));
  Transfer* on_device = nullptr;
  check(cudaMalloc(&on_device, at.size() * sizeof(Transfer)));
  record<<<static_cast<unsigned>(ceil_div(static_cast<int>(at.size()), 128)), 128>>>(schedule, on_device);
  check(cudaGetLastError());
  check(cudaMemcpy(at.data(), on_device, at.size() * sizeof(Transfer), cudaMemcpyDeviceToHost));
  check(cudaFree(on_device));
  return at;
}

template std::vector<Transfer> at_on_device(const Ring&);
template std::vector<Transfer> at_on_device(const AllToAll&);
template std::vector<Transfer> at_on_device(const ClusterReduce&);
template std::vector<Transfer> at_on_device(const ClusterGather&);
template std::vector<Transfer> at_on_device(const Torus&);
template std::vector<Transfer> at_on_device(const TwoHop&);
template std::vector<Transfer> at_on_device(const KTree&);

}  // namespace heddle::schedule
