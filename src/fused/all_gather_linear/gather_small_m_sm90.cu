// All-gather + GEMM of few rows on Hopper. Such a GEMM reads W at the memory's rate and needs all of A at its first
// product, so it waits for A as a whole: a kernel of few threads gathers A, and the GEMM of kernels/linear, which starts
// beside it by PDL, has the first of its weights in shared memory by then.
#include <cuda_runtime_api.h>

#include "base/alignment.h"
#include "device/launch_sm90.cuh"
#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "fused/all_gather_linear/gather_small_m.cuh"
#include "fused/linear_small_m_sm90.h"

namespace heddle {
namespace {

constexpr char kSmallGather[] = "all_gather_linear: small M";
// Beside 256 a block of the GEMM finds its registers; more rows than it streams for want more loads in flight.
constexpr int kGatherThreads = 256, kGatherThreadsOfMany = 1024;

template <int kBlockThreads>
__global__ void __launch_bounds__(kBlockThreads)
    gather_small_m(const __grid_constant__ GatherSmallM gather, const __grid_constant__ Peers peers) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  gather(DeviceBlock{}, peers);
}

}  // namespace

// By what all ranks share, because pieces and tiles take the channel's slots differently.
bool is_for_small_m(const GatherCall& call) {
  if (call.params.y.rows > kGatherFirstRows || call.params.variant == GatherVariant::copy ||
      call.tiles.element_bytes != sizeof(std::uint16_t))
    return false;
  for (int rank = 0; rank < call.peers.size; ++rank)
    if (call.tiles.row_bytes(rank) % sizeof(Vector16) != 0) return false;
  return ShardPieces{call.tiles}.largest_bytes() <= call.slots.tile_bytes;
}

void gather_small_m_sm90(const GatherCall& call, void* whole, const Lane& lane) {
  const Tensor& x = call.params.x;
  const bool many = call.params.y.rows > kLinearSmallRows;
  launch_sm90(kSmallGather, many ? gather_small_m<kGatherThreadsOfMany> : gather_small_m<kGatherThreads>,
              {.grid = dim3(ShardPieces::kMost),
               .block = dim3(many ? kGatherThreadsOfMany : kGatherThreads),
               .fit = GridFit::trimmed},
              lane,
              GatherSmallM{.pieces = {call.tiles},
                           .shard = {static_cast<const std::byte*>(x.data),
                                     static_cast<std::size_t>(x.row_stride) * size_of(x.dtype)},
                           .slots = call.slots,
                           .whole = static_cast<std::byte*>(whole),
                           .pulls = call.params.variant == GatherVariant::pull,
                           .aligned = is_aligned(x.data) && x.row_stride % 8 == 0},
              call.peers);
  const Weight& weight = call.params.weight;
  linear_small_m({.x = {whole, call.params.y.rows, weight.in_features, weight.in_features, x.dtype},
                  .weight = weight,
                  .y = call.params.y},
                 lane);
}

}  // namespace heddle
