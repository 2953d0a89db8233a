#include "fused/linear_reduce_scatter/partial_tiles.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "device/channel_calls.h"
#include "fabric/symmetric_heap.h"
#include "fused/linear_reduce_scatter/partial_tiles_sm90.h"
#include "fused/linear_reduce_scatter/reduce_small_m.cuh"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cpu.h"
#include "schedule/tile_order.h"

namespace heddle {
namespace {

void require_limits(const PartialLimits& limits) {
  require(limits.largest_shard >= 1 && limits.n >= 1 && limits.tile_rows >= 1,
          "fused linear: {} rows of {} in tiles of {}; each must be at least 1", limits.largest_shard, limits.n,
          limits.tile_rows);
}

constexpr const char* kSumInbox = "fused linear: bytes of the inbox";

// Of all forms of SmallSum, for calls of few rows.
std::size_t inbox_buffer_bytes(int ranks, const PartialLimits& limits) {
  const std::size_t row_bytes = checked_mul(static_cast<std::size_t>(limits.n), sizeof(float), kSumInbox),
                    one_shot_rows = std::min<std::size_t>(kReduceSmallM, kOneShotSumBytes / row_bytes),
                    summed_rows = static_cast<std::size_t>(std::min(limits.largest_shard, kReduceSmallM));
  return PacketInbox::buffer_bytes_for(
      ranks, checked_mul(std::max(2 * summed_rows, one_shot_rows), packets_of(row_bytes), kSumInbox));
}

// y = the sum of the ranks' products of its rows, packed and `bytes_apart` from one rank's to the next: added in rank order
// and rounded once, so that it has the same bits wherever it is taken.
void sum_products(const std::byte* products, std::size_t bytes_apart, int ranks, const Tensor& y) {
  const auto columns = static_cast<std::size_t>(y.columns);
  std::vector<float> sums(columns);
  for (std::int64_t row = 0; row < y.rows; ++row) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto* const product =
          reinterpret_cast<const float*>(products + static_cast<std::size_t>(rank) * bytes_apart) + row * y.columns;
      if (rank == 0)
        std::copy_n(product, columns, sums.begin());
      else
        for (std::size_t i = 0; i < columns; ++i) sums[i] += product[i];
    }
    convert(sums.data(), DType::float32, rows_of(y, row, 1).data, y.dtype, columns);
  }
}

}  // namespace

TileChannelShape PartialTiles::channel_shape(const PartialLimits& limits, DeviceKind device) {
  require_limits(limits);
  const bool on_gpu = device == DeviceKind::cuda;
  const std::int64_t tile_rows = on_gpu ? partial_rows(limits.largest_shard) : limits.tile_rows,
                     rows = on_gpu ? tile_rows : std::min(limits.largest_shard, tile_rows),
                     columns = on_gpu ? kPartialColumns : limits.n;
  const auto row_tiles = static_cast<int>((limits.largest_shard + tile_rows - 1) / tile_rows);
  return {.tiles_per_rank = row_tiles * (on_gpu ? partial_column_tiles(limits.n) : 1),
          .tile_bytes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * sizeof(float)};
}

std::size_t PartialTiles::channel_heap_bytes(int world_size, const PartialLimits& limits, DeviceKind device) {
  return round_up(TileChannel::heap_bytes(world_size, channel_shape(limits, device)), SymmetricHeap::kAlignment);
}

std::size_t PartialTiles::heap_bytes(int world_size, const PartialLimits& limits, DeviceKind device) {
  const std::size_t channel = channel_heap_bytes(world_size, limits, device);
  if (device == DeviceKind::cpu) return channel;
  return checked_add(channel, PacketInbox::heap_bytes(inbox_buffer_bytes(world_size, limits)), kSumInbox);
}

PartialTiles::PartialTiles(Fabric& fabric, Ranks team, const PartialLimits& limits, std::string_view who)
    : limits_(limits), tiles_(fabric, std::move(team), channel_shape(limits, fabric.device().kind), who) {
  if (!on_gpu()) return;
  std::size_t product_bytes =
      static_cast<std::size_t>(kReduceSmallM) * static_cast<std::size_t>(limits.n) * sizeof(float);
  if constexpr (kHaveCuda) product_bytes = std::max(product_bytes, partial_products_bytes(fabric.device()));
  product_ = Buffer(product_bytes, fabric.device());
  inbox_ = PacketInbox(fabric, inbox_buffer_bytes(fabric.size(), limits));  // last, as the ranks meet
}

void PartialTiles::check(const PartialProduct& product, const Tensor& y, std::int64_t y_rows, const Lane& lane,
                         std::string_view who) const {
  const Shards& rows = product.rows;
  require(rows.ranks == peers().size, "{}: shards of {} ranks, in a team of {}", who, rows.ranks, peers().size);
  require(rows.largest() <= limits_.largest_shard, "{}: a shard of {} rows, more than the limit {}", who,
          rows.largest(), limits_.largest_shard);
  require(rows.total() == product.x.rows, "{}: shards hold {} rows, x has {}", who, rows.total(), product.x.rows);
  require(product.weight.out_features == limits_.n, "{}: the weight has {} out features, made for {}", who,
          product.weight.out_features, limits_.n);
  require(y.rows == y_rows && y.columns == limits_.n && (y.dtype == DType::float32 || y.dtype == product.x.dtype) &&
              y.row_stride >= y.columns && (y.data != nullptr || y_rows == 0),
          "{}: y is [{}, {}] of {}, expected [{}, {}] of float32 or x's {}", who, y.rows, y.columns, name_of(y.dtype),
          y_rows, limits_.n, name_of(product.x.dtype));
  // The products lie in symmetric memory, which has no address here. GEMMs of few rows need no workspace on a GPU, as
  // these.
  Tensor x = product.x;
  if (on_gpu()) x.rows = std::min(x.rows, kLinearSmallRows);
  Tensor partial{x.data, x.rows, limits_.n, limits_.n, DType::float32};
  require_linear({.x = x, .weight = product.weight, .y = partial}, lane);
}

void PartialTiles::enqueue_on_gpu(const PartialProduct& product, const Tensor& y, const TileSlots& sums,
                                  const Lane& lane) {
  const PartialCall call{.rows = product.rows,
                         .x = product.x,
                         .weight = product.weight,
                         .y = y,
                         .slot_rows = partial_rows(limits_.largest_shard),
                         .partials = tiles_.slots(),
                         .sums = sums,
                         .inbox = inbox_.memory(),
                         .peers = peers(),
                         .own_gpus = tiles_.fabric().device_share().ranks == 1};
  if constexpr (kHaveCuda) {
    if (is_for_small_m(call)) return reduce_small_m_sm90(call, reinterpret_cast<float*>(product_.data()), lane);
    partial_linear_sm90(call, product_.data(), lane);
  }
}

std::int64_t PartialTiles::rows(const PartialProduct& product, int rank, int tile) const {
  return std::min(limits_.tile_rows, product.rows.count(rank) - first_row(tile));
}

bool PartialTiles::push(const PartialProduct& product, ThreadPool& pool) const {
  const Peers& peers = tiles_.peers();
  const TileSlots& slots = tiles_.slots();
  int most = 0;
  for (int rank = 0; rank < peers.size; ++rank) most = std::max(most, tiles(product, rank));
  const schedule::TileOrder order{peers.size, most};
  for (int step = 0; step < order.steps(); ++step) {
    const auto [owner, tile] = order.at((peers.rank + 1) % peers.size, step);
    if (tile >= tiles(product, owner)) continue;
    const bool own = owner == peers.rank;
    if (!own && !claim(HostThread{}, peers, owner, slots.channel, tile, "reduce: credit")) return false;
    const std::int64_t count = rows(product, owner, tile);
    const Tensor partial{peers.at(owner, slots.arriving(peers.rank, tile)), count, limits_.n, limits_.n,
                         DType::float32};
    const Tensor x = rows_of(product.x, product.rows.begin(owner) + first_row(tile), count);
    linear_cpu({.x = x, .weight = product.weight, .y = partial}, loops_for(linear_cpu_machine(), x.dtype), pool);
    if (!own) fill(HostThread{}, peers, owner, slots.channel, tile);
  }
  return true;
}

bool PartialTiles::sum(int tile, const Tensor& y) const {
  const Peers& peers = tiles_.peers();
  const TileSlots& slots = tiles_.slots();
  for (int p = 0; p < peers.size; ++p)
    if (p != peers.rank && !await_full(HostThread{}, peers, p, slots.channel, tile, "reduce: tile")) return false;
  sum_products(slots.arriving(0, tile), slots.tile_bytes * static_cast<std::size_t>(slots.channel.slots_per_peer),
               peers.size, y);
  for (int p = 0; p < peers.size; ++p)
    if (p != peers.rank) give_back(HostThread{}, peers, p, slots.channel, tile, 1);
  return true;
}

}  // namespace heddle
