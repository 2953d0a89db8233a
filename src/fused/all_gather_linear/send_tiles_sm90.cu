// The producers of produce.cuh by blocks of as many threads as an SM has, so that few SMs fill a link and the GEMM has the
// others.
#include "fused/all_gather_linear/all_gather_linear_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/launch_sm90.cuh"
#include "fused/all_gather_linear/produce.cuh"

namespace heddle {
namespace {

constexpr char kSend[] = "all_gather_linear: transfer";
constexpr int kSenderThreads = 1024;

template <class Producer>
__global__ void __launch_bounds__(kSenderThreads, 1)
    send_tiles(const __grid_constant__ Producer producer, const __grid_constant__ Peers peers) {
  producer(DeviceBlock{}, peers);
}

}  // namespace

void enqueue_shard_sm90(const GatherCall& call, int sms, Stream& transfers) {
  const Tensor& x = call.params.x;
  const OwnShard shard{static_cast<const std::byte*>(x.data),
                       static_cast<std::size_t>(x.row_stride) * size_of(x.dtype)};
  const int tiles = call.tiles.tiles(call.peers.rank);
  if (tiles == 0 || call.peers.size == 1) return;
  // In pairs, side by side, so that the GEMM's clusters find pairs of SMs.
  const bool in_pairs = call.alone && sms % 2 == 0;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::min(sms, in_pairs ? tiles + tiles % 2 : tiles))),
                          .block = dim3(kSenderThreads),
                          .cluster = in_pairs ? 2U : 1U,
                          .programmatic = false};
  if (call.params.variant == GatherVariant::pull)
    launch_sm90(kSend, send_tiles<OfferShard>, shape, transfers, OfferShard{call.tiles, shard, call.slots}, call.peers);
  else
    launch_sm90(kSend, send_tiles<PushShard>, shape, transfers, PushShard{call.tiles, shard, call.slots}, call.peers);
}

}  // namespace heddle
