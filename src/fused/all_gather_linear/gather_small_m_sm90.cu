// All-gather + GEMM of few rows on Hopper. Such a GEMM reads W at the memory's rate and needs all of A at its first
// product, so it waits for A as a whole: a kernel gathers A, and the GEMM of kernels/linear, which starts beside it by
// PDL, has the first of its weights in shared memory by then.
#include <cuda_runtime_api.h>

#include "base/alignment.h"
#include "device/launch_sm90.cuh"
#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "fused/all_gather_linear/pull_small_m.cuh"
#include "fused/all_gather_linear/push_small_m.cuh"
#include "fused/linear_small_m_sm90.h"

namespace heddle {
namespace {

constexpr char kSmallGather[] = "all_gather_linear: small M";
// Beside 256 a block of the GEMM finds its registers; a pull of more rows than it streams for wants more loads in
// flight.
constexpr int kPushThreads = 256, kPushThreadsAlone = 512, kPullThreads = 256, kPullThreadsOfMany = 1024;

template <int kBlockThreads, class Gather>
__global__ void __launch_bounds__(kBlockThreads)
    gather_small_m(const __grid_constant__ Gather gather, const __grid_constant__ Peers peers) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  gather(DeviceBlock{}, peers);
}

bool pulls(const GatherCall& call) {
  return call.params.variant == GatherVariant::pull;
}

// From a rank to another.
std::size_t packets_between_ranks(const GatherCall& call) {
  return ShardPackets{call.tiles}.most();
}

}  // namespace

// By what all ranks share, because small and large M take the channel's slots differently.
bool is_for_small_m(const GatherCall& call) {
  if (call.params.y.rows > gather_first_rows(call.tiles.of_rows) || call.params.variant == GatherVariant::copy ||
      call.tiles.element_bytes != sizeof(std::uint16_t))
    return false;
  for (int rank = 0; rank < call.peers.size; ++rank)
    if (call.tiles.row_bytes(rank) % sizeof(Vector16) != 0) return false;
  return pulls(call) ? ShardPieces{call.tiles}.largest_bytes() <= call.slots.tile_bytes
                     : static_cast<std::size_t>(call.peers.size) * packets_between_ranks(call) <= call.inbox.packets();
}

void gather_small_m_sm90(const GatherCall& call, void* whole, const Lane& lane) {
  const Tensor& x = call.params.x;
  const OwnShard shard = shard_of(call);
  auto* const to = static_cast<std::byte*>(whole);
  const auto launch = [&](const auto& gather, auto kernel, int blocks, int threads) {
    launch_sm90(kSmallGather, kernel,
                {.grid = dim3(static_cast<unsigned>(blocks)),
                 .block = dim3(static_cast<unsigned>(threads)),
                 .fit = GridFit::trimmed},
                lane, gather, call.peers);
  };
  if (pulls(call)) {
    const PullSmallM pull{
        .pieces = {call.tiles}, .shard = shard, .slots = call.slots, .whole = to, .aligned = rows_are_aligned(x)};
    if (call.params.y.rows > kLinearSmallRows)
      launch(pull, gather_small_m<kPullThreadsOfMany, PullSmallM>, ShardPieces::kMost, kPullThreadsOfMany);
    else
      launch(pull, gather_small_m<kPullThreads, PullSmallM>, ShardPieces::kMost, kPullThreads);
  } else {
    // cuBLASLt, which multiplies more rows than kLinearBatchRows, starts behind the gather.
    const bool alone = call.params.y.rows > kLinearBatchRows;
    const auto push = [&]<int kAtOnce>() {
      const std::size_t packets = packets_between_ranks(call);
      const PacketGrid grid = alone ? PacketGrid::alone(packets) : PacketGrid::of(packets);
      using Push = PushSmallM<kAtOnce>;
      const Push gather{.packets = {call.tiles},
                        .most = static_cast<std::uint32_t>(packets),
                        .shard = shard,
                        .memory = call.inbox,
                        .whole = to};
      if (alone)
        launch(gather, gather_small_m<kPushThreadsAlone, Push>, grid.blocks, grid.threads);
      else
        launch(gather, gather_small_m<kPushThreads, Push>, grid.blocks, grid.threads);
    };
    if (call.peers.size <= 2)
      push.template operator()<2>();
    else
      push.template operator()<4>();
  }
  const Weight& weight = call.params.weight;
  linear_small_m({.x = {whole, call.params.y.rows, weight.in_features, weight.in_features, x.dtype},
                  .weight = weight,
                  .y = call.params.y},
                 lane);
}

}  // namespace heddle
