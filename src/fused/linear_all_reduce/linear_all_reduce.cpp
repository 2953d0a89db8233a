#include "fused/linear_all_reduce/linear_all_reduce.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "device/channel_calls.h"

namespace heddle {
namespace {

constexpr const char* kAllReduce = "linear_all_reduce";

// A rank sums an even part of the rows.
PartialLimits partial_limits(int ranks, const LinearAllReduceLimits& limits) {
  return {.largest_shard = (limits.m + ranks - 1) / ranks, .n = limits.n, .tile_rows = limits.tile_rows};
}

// Packed rows to or from a tensor.
void put_rows(const Peers& peers, int to, std::byte* destination, const Tensor& y) {
  const TracedSection sending("transfer");
  const std::size_t row_bytes = static_cast<std::size_t>(y.columns) * sizeof(float);
  for (std::int64_t row = 0; row < y.rows; ++row)
    put(HostThread{}, peers, to, destination + static_cast<std::size_t>(row) * row_bytes,
        static_cast<const float*>(y.data) + row * y.row_stride, row_bytes);
}

void take_rows(const Tensor& y, const std::byte* source) {
  const std::size_t row_bytes = static_cast<std::size_t>(y.columns) * sizeof(float);
  for (std::int64_t row = 0; row < y.rows; ++row)
    vector_copy(HostThread{}, static_cast<float*>(y.data) + row * y.row_stride,
                source + static_cast<std::size_t>(row) * row_bytes, row_bytes);
}

}  // namespace

struct LinearAllReduce::Call {
  PartialProduct product;
  Tensor y;
};

std::size_t LinearAllReduce::heap_bytes(int world_size, const LinearAllReduceLimits& limits, DeviceKind device) {
  std::size_t most = 0;  // a smaller team sums more rows per rank
  for (int ranks = 1; ranks <= world_size; ++ranks) {
    const PartialLimits partials = partial_limits(ranks, limits);
    most = std::max(most, PartialTiles::heap_bytes(world_size, partials, device) +
                              PartialTiles::channel_heap_bytes(world_size, partials, device));
  }
  return most;
}

LinearAllReduce::LinearAllReduce(Fabric& fabric, Ranks team, const LinearAllReduceLimits& limits)
    : partials_(fabric, team, partial_limits(std::max(1, static_cast<int>(team.size())), limits), kAllReduce),
      sums_(fabric, team,
            PartialTiles::channel_shape(partial_limits(std::max(1, static_cast<int>(team.size())), limits),
                                        fabric.device().kind),
            kAllReduce) {}

void LinearAllReduce::operator()(const LinearAllReduceParams& params, const Lane& lane) {
  const Call call{{Shards::even(params.x.rows, partials_.peers().size), params.x, params.weight}, params.y};
  partials_.check(call.product, params.y, params.x.rows, lane, kAllReduce);
  require(params.y.dtype == DType::float32, "{}: y is {}, expected float32", kAllReduce, name_of(params.y.dtype));
  if (params.x.rows == 0 || lane.dry_run != nullptr) return;
  const Span span(lane.stream, "linear");
  if (partials_.on_gpu()) return partials_.enqueue_on_gpu(call.product, params.y, sums_.slots(), lane);
  lane.stream.enqueue([this, shared = std::make_shared<const Call>(call)](ThreadPool& pool) { run(*shared, pool); });
}

void LinearAllReduce::run(const Call& call, ThreadPool& pool) const {
  const Peers& peers = sums_.peers();
  const TileSlots& slots = sums_.slots();
  const auto tile_of_y = [&](int owner, int tile) {
    return rows_of(call.y, call.product.rows.begin(owner) + partials_.first_row(tile),
                   partials_.rows(call.product, owner, tile));
  };
  if (!partials_.push(call.product, pool)) return;
  for (int tile = 0; tile < partials_.tiles(call.product, peers.rank); ++tile) {
    const Tensor sum = tile_of_y(peers.rank, tile);
    if (!partials_.sum(tile, sum)) return;
    for (int step = 1; step < peers.size; ++step) {
      const int to = (peers.rank + step) % peers.size;
      if (!claim(HostThread{}, peers, to, slots.channel, tile, "sum: credit")) return;
      put_rows(peers, to, slots.arriving(peers.rank, tile), sum);
      fill(HostThread{}, peers, to, slots.channel, tile);
    }
  }
  for (int step = 1; step < peers.size; ++step) {
    const int owner = (peers.rank + step) % peers.size;
    for (int tile = 0; tile < partials_.tiles(call.product, owner); ++tile) {
      if (!await_full(HostThread{}, peers, owner, slots.channel, tile, "sum: tile")) return;
      take_rows(tile_of_y(owner, tile), slots.arriving(owner, tile));
      give_back(HostThread{}, peers, owner, slots.channel, tile, 1);
    }
  }
}

}  // namespace heddle
