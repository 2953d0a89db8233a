// The producers of produce.cuh by blocks of as many threads as an SM has, so that few SMs fill a link and the GEMM has the
// others; and the calls of the channel that stand before and behind copies.
#include "fused/all_gather_linear/all_gather_linear_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/channel_calls.h"
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

constexpr int kCallThreads = 128;

// f(receiver, tile) of tiles [first, first + count) for all other ranks, a thread each.
template <class F>
__device__ void each_slot(const Peers& peers, int first, int count, F f) {
  for (int i = static_cast<int>(threadIdx.x); i < count * (peers.size - 1); i += kCallThreads)
    f((peers.rank + 1 + i / count) % peers.size, first + i % count);
}

// A wait that has given up is in the record.
__global__ void __launch_bounds__(kCallThreads)
    claim_tiles(const __grid_constant__ Channel channel, const __grid_constant__ Peers peers, int first, int count) {
  each_slot(peers, first, count, [&](int to, int tile) {
    static_cast<void>(claim(DeviceThread{}, peers, to, channel, tile, "copy: credit"));
  });
}

__global__ void __launch_bounds__(kCallThreads)
    fill_tiles(const __grid_constant__ Channel channel, const __grid_constant__ Peers peers, int first, int count) {
  each_slot(peers, first, count, [&](int to, int tile) { fill(DeviceThread{}, peers, to, channel, tile); });
}

constexpr LaunchShape kCallShape{.grid = dim3(1), .block = dim3(kCallThreads), .programmatic = false};

}  // namespace

void claim_tiles_sm90(const GatherCall& call, int first, int count, Stream& transfers) {
  launch_sm90(kSend, claim_tiles, kCallShape, transfers, call.slots.channel, call.peers, first, count);
}

void fill_tiles_sm90(const GatherCall& call, int first, int count, Stream& transfers) {
  launch_sm90(kSend, fill_tiles, kCallShape, transfers, call.slots.channel, call.peers, first, count);
}

void enqueue_shard_sm90(const GatherCall& call, int sms, Stream& transfers) {
  const OwnShard shard = shard_of(call);
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
