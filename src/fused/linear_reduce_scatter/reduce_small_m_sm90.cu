// GEMM + reduce-scatter and GEMM + all-reduce of few rows on Hopper. The GEMM of kernels/linear writes this rank's
// product; a kernel that has started beside it by PDL then sums over ranks by packets (reduce_small_m.cuh).
#include "fused/linear_reduce_scatter/reduce_small_m.cuh"

#include <cuda_runtime_api.h>

#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "fused/linear_reduce_scatter/partial_tiles_sm90.h"
#include "fused/linear_small_m_sm90.h"

namespace heddle {
namespace {

constexpr char kSmallReduce[] = "fused linear: small M";
constexpr int kReduceThreads = 256, kReduceThreadsAlone = 512;

template <int kThreads, SmallSum kForm, class Y>
__global__ void __launch_bounds__(kThreads)
    reduce_small_m(const __grid_constant__ ReduceSmallM<kForm, Y> reduce, const __grid_constant__ Peers peers) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  reduce(DeviceBlock{}, peers);
}

SumPackets packets_of_call(const PartialCall& call) {
  const std::int64_t n = call.weight.out_features;
  const bool to_all = call.sums.inbox != nullptr;
  return to_all ? SumPackets::of_all_reduce(call.rows, n) : SumPackets{SmallSum::scattered, call.rows, n};
}

template <SmallSum kForm, class Y = float>
void launch_sum(const PartialCall& call, const SumPackets& packets, const float* product, const Lane& lane) {
  const std::uint32_t most = packets.most();
  const ReduceSmallM<kForm, Y> reduce{.packets = packets,
                                      .most = most,
                                      .memory = call.inbox,
                                      .product = product,
                                      .y = static_cast<Y*>(call.y.data),
                                      .y_stride = call.y.row_stride};
  const auto launch = [&](auto kernel, const PacketGrid& grid) {
    launch_sm90(kSmallReduce, kernel,
                {.grid = dim3(static_cast<unsigned>(grid.blocks)),
                 .block = dim3(static_cast<unsigned>(grid.threads)),
                 .fit = GridFit::trimmed},
                lane, reduce, call.peers);
  };
  // A GEMM of kernels/linear runs beside it, which cuBLASLt's does not.
  if (call.x.rows > kLinearBatchRows)
    launch(reduce_small_m<kReduceThreadsAlone, kForm, Y>, PacketGrid::alone(most));
  else
    launch(reduce_small_m<kReduceThreads, kForm, Y>, PacketGrid::of(most));
}

}  // namespace

// By what all ranks share.
bool is_for_small_m(const PartialCall& call) {
  const std::int64_t most = call.own_gpus ? kReduceSmallM : kLinearBatchRows;
  return call.x.rows <= most && packets_of_call(call).of_inbox() <= call.inbox.packets();
}

void reduce_small_m_sm90(const PartialCall& call, float* product, const Lane& lane) {
  const std::int64_t n = call.weight.out_features;
  linear_small_m({.x = call.x, .weight = call.weight, .y = {product, call.x.rows, n, n, DType::float32}}, lane);
  const SumPackets packets = packets_of_call(call);
  switch (packets.form) {
    case SmallSum::scattered:
      return with_element(call.y.dtype,
                          [&]<class Y>() { launch_sum<SmallSum::scattered, Y>(call, packets, product, lane); });
    case SmallSum::one_shot:
      return launch_sum<SmallSum::one_shot>(call, packets, product, lane);
    case SmallSum::two_phase:
      return launch_sum<SmallSum::two_phase>(call, packets, product, lane);
  }
}

}  // namespace heddle
