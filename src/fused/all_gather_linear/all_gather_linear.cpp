#include "fused/all_gather_linear/all_gather_linear.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/trace.h"
#include "device/packet.cuh"
#include "fabric/symmetric_heap.h"
#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "fused/all_gather_linear/produce.cuh"
#include "fused/all_gather_linear/pull_small_m.cuh"
#include "fused/rows_of.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cpu.h"
#include "schedule/tile_order.h"

namespace heddle {
namespace {

constexpr const char* kGatherInbox = "all_gather_linear: bytes of the inbox";

TileChannelShape channel_shape(const AllGatherLinearLimits& limits) {
  const bool of_rows = limits.sharded == Sharded::rows;
  const std::int64_t rows = of_rows ? limits.largest_shard : limits.other;
  const std::int64_t columns = of_rows ? limits.other : limits.largest_shard;
  require(limits.largest_shard >= 1 && limits.other >= 1 && limits.tile_rows >= 1,
          "all_gather_linear: a shard of {} by {} in tiles of {} rows; each must be at least 1", rows, columns,
          limits.tile_rows);
  const std::int64_t tile_rows = std::min(rows, limits.tile_rows), tiles = (rows + tile_rows - 1) / tile_rows;
  return {.tiles_per_rank = static_cast<int>(std::max<std::int64_t>(tiles, ShardPieces::kMost)),
          .tile_bytes = static_cast<std::size_t>(tile_rows) * static_cast<std::size_t>(columns) * size_of(limits.dtype),
          .pulled = true};
}

// Of few rows of 16-bit elements, which alone are pushed by packets.
std::size_t inbox_buffer_bytes(int ranks, const AllGatherLinearLimits& limits) {
  if (size_of(limits.dtype) != sizeof(std::uint16_t)) return 0;
  const bool of_rows = limits.sharded == Sharded::rows;
  const std::int64_t rows = std::min(of_rows ? limits.largest_shard : limits.other, gather_first_rows(of_rows)),
                     columns = of_rows ? limits.other : limits.largest_shard;
  const std::size_t row_bytes = checked_mul(static_cast<std::size_t>(columns), size_of(limits.dtype), kGatherInbox);
  return PacketInbox::buffer_bytes_for(
      ranks, checked_mul(static_cast<std::size_t>(rows), packets_of(row_bytes), kGatherInbox));
}

// The GEMM of one rank on the CPU. The variants differ in one line: from where a tile of another rank is loaded.
struct GatheredLinear {
  ShardTiles tiles;
  TileSlots slots;
  const Peers& peers;
  const AllGatherLinearParams& params;
  std::byte* whole_rows;  // [tile_rows, K]

  const std::byte* load_tile(int owner, int tile) const {
    return params.variant == GatherVariant::pull ? peers.at(owner, slots.offered(tile))  // Alg. 1, RemotePull
                                                 : slots.arriving(owner, tile);          // Alg. 3, Load(Inbox)
  }

  void multiply(const Tensor& x, std::int64_t first_row, ThreadPool& pool) const {
    const LinearParams linear{.x = x, .weight = params.weight, .y = rows_of(params.y, first_row, x.rows)};
    linear_cpu(linear, loops_for(linear_cpu_machine(), x.dtype), pool);
  }

  // Each tile is rows of A.
  void over_rows(ThreadPool& pool) const {
    const schedule::TileOrder order{peers.size, tiles.most_tiles()};
    for (int step = 0; step < order.steps(); ++step) {
      const auto [owner, tile] = order.at(peers.rank, step);
      if (tile >= tiles.tiles(owner)) continue;
      const std::int64_t rows = tiles.rows(owner, tile), first = tiles.shards.begin(owner) + tiles.first_row(tile);
      if (owner == peers.rank) {
        multiply(rows_of(params.x, tiles.first_row(tile), rows), first, pool);
        continue;
      }
      if (!await_full(HostThread{}, peers, owner, slots.channel, tile, "gather: tile")) return;
      // linear_cpu does not write x.
      multiply({const_cast<std::byte*>(load_tile(owner, tile)), rows, tiles.other, tiles.other, params.x.dtype}, first,
               pool);
      give_back(HostThread{}, peers, owner, slots.channel, tile, 1);
    }
  }

  // Each tile is a part of some rows; they are multiplied when all parts are there.
  void over_columns(ThreadPool& pool) const {
    const std::int64_t k = tiles.shards.total();
    const std::size_t row_bytes = static_cast<std::size_t>(k) * tiles.element_bytes;
    for (int tile = 0; tile < tiles.most_tiles(); ++tile) {
      std::int64_t rows = 0;
      const schedule::TileOrder order{peers.size, 1};
      for (int step = 0; step < order.steps(); ++step) {
        const int owner = order.at(peers.rank, step).owner;
        if (tiles.tiles(owner) == 0) continue;
        rows = tiles.rows(owner, tile);
        const bool own = owner == peers.rank;
        if (!own && !await_full(HostThread{}, peers, owner, slots.channel, tile, "gather: tile")) return;
        const Tensor mine = own ? rows_of(params.x, tiles.first_row(tile), rows) : Tensor{};
        const std::byte* const from = own ? static_cast<const std::byte*>(mine.data) : load_tile(owner, tile);
        const std::size_t part = tiles.row_bytes(owner),
                          stride = own ? static_cast<std::size_t>(mine.row_stride) * tiles.element_bytes : part;
        std::byte* const to = whole_rows + static_cast<std::size_t>(tiles.shards.begin(owner)) * tiles.element_bytes;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
          std::memcpy(to + row * row_bytes, from + row * stride, part);
        if (!own) give_back(HostThread{}, peers, owner, slots.channel, tile, 1);
      }
      multiply({whole_rows, rows, k, k, params.x.dtype}, tiles.first_row(tile), pool);
    }
  }
};

ShardTiles tiles_of(const AllGatherLinearParams& params, const AllGatherLinearLimits& limits) {
  const bool of_rows = limits.sharded == Sharded::rows;
  return {.shards = params.shards,
          .of_rows = of_rows,
          .other = of_rows ? params.weight.in_features : params.y.rows,
          .tile_rows = limits.tile_rows,
          .element_bytes = size_of(limits.dtype)};
}

}  // namespace

std::string_view name_of(GatherVariant variant) {
  switch (variant) {
    case GatherVariant::pull:
      return "pull";
    case GatherVariant::push:
      return "push";
    case GatherVariant::copy:
      return "copy";
  }
  return "?";
}

std::size_t AllGatherLinear::heap_bytes(int world_size, const AllGatherLinearLimits& limits, DeviceKind device) {
  const std::size_t tiles = TileChannel::heap_bytes(world_size, channel_shape(limits));
  if (device == DeviceKind::cpu) return tiles;
  return checked_add(round_up(tiles, SymmetricHeap::kAlignment),
                     PacketInbox::heap_bytes(inbox_buffer_bytes(world_size, limits)), kGatherInbox);
}

AllGatherLinear::AllGatherLinear(Fabric& fabric, Ranks team, const AllGatherLinearLimits& limits)
    : limits_(limits), tiles_(fabric, std::move(team), channel_shape(limits), "all_gather_linear") {
  ready_ = Event(fabric.device());
  sent_ = Event(fabric.device());
  if (const std::size_t bytes = whole_rows_bytes(); bytes > 0) whole_rows_ = Buffer(bytes, fabric.device());
  if (on_gpu()) inbox_ = PacketInbox(fabric, inbox_buffer_bytes(fabric.size(), limits));  // last, as the ranks meet
}

std::size_t AllGatherLinear::whole_rows_bytes() const {
  const bool of_rows = limits_.sharded == Sharded::rows;
  if (!on_gpu() && of_rows) return 0;
  const std::int64_t of_all = limits_.largest_shard * tiles_.peers().size, rows = of_rows ? of_all : limits_.other,
                     columns = of_rows ? limits_.other : of_all,
                     most_rows = on_gpu() ? gather_first_rows(of_rows) : limits_.tile_rows;
  return static_cast<std::size_t>(std::min(rows, most_rows)) * static_cast<std::size_t>(columns) *
         size_of(limits_.dtype);
}

void AllGatherLinear::check(const AllGatherLinearParams& params, const Lane& lane, const Stream& transfers) const {
  const Peers& peers = tiles_.peers();
  const bool of_rows = limits_.sharded == Sharded::rows;
  const Shards& shards = params.shards;
  require(shards.ranks == peers.size, "all_gather_linear: shards of {} ranks, in a team of {}", shards.ranks,
          peers.size);
  require(shards.largest() <= limits_.largest_shard, "all_gather_linear: a shard of {}, more than the limit {}",
          shards.largest(), limits_.largest_shard);
  const std::int64_t k = params.weight.in_features, m = params.y.rows;
  require((of_rows ? k : m) <= limits_.other && (!of_rows || k == limits_.other),
          "all_gather_linear: A is [{}, {}], made for {} {}", m, k, limits_.other, of_rows ? "columns" : "rows");
  require(shards.total() == (of_rows ? m : k), "all_gather_linear: shards hold {} {} of A, which has {}",
          shards.total(), of_rows ? "rows" : "columns", of_rows ? m : k);
  const std::int64_t mine = shards.count(peers.rank);
  require(params.x.rows == (of_rows ? mine : m) && params.x.columns == (of_rows ? k : mine),
          "all_gather_linear: x is [{}, {}] on rank {}, expected [{}, {}]", params.x.rows, params.x.columns, peers.rank,
          of_rows ? mine : m, of_rows ? k : mine);
  require(params.x.dtype == limits_.dtype, "all_gather_linear: x is {}, made for {}", name_of(params.x.dtype),
          name_of(limits_.dtype));
  require(params.x.row_stride >= params.x.columns && (params.x.data != nullptr || mine == 0 || m == 0),
          "all_gather_linear: x has no data, or rows {} elements apart with {} columns", params.x.row_stride,
          params.x.columns);
  require(transfers.device() == lane.stream.device() && &transfers != &lane.stream,
          "all_gather_linear: needs a second stream of the same device");
  // Anything that is not null: x itself may be another rank's. GEMMs of few rows need no workspace on a GPU, as these.
  const std::int64_t rows = on_gpu() ? std::min(m, kLinearSmallRows) : m;
  const Tensor any_x{params.y.data, rows, k, k, limits_.dtype};
  require_linear({.x = any_x, .weight = params.weight, .y = rows_of(params.y, 0, rows)}, lane);
  require(!on_gpu() || lane.num_sms >= 2, "all_gather_linear: a lane of {} SM; producer and GEMM each need one",
          lane.num_sms);
}

GatherCall AllGatherLinear::call_of(const AllGatherLinearParams& params, const Lane& lane) const {
  return {tiles_of(params, limits_),
          tiles_.slots(),
          inbox_.memory(),
          tiles_.peers(),
          params,
          on_gpu() && lane.num_other_sms() == 0};
}

// On a GPU in chunks of tiles: a kernel that waits for their credits, a copy, and a kernel that fills their slots take
// some microseconds each.
void AllGatherLinear::enqueue_copies(const GatherCall& call, const OwnShard& shard, Stream& transfers) const {
  const ShardTiles& tiles = call.tiles;
  const Peers& peers = tiles_.peers();
  const auto rows_from = [&](int tile, std::int64_t rows) {
    return RowsToSend{.data = shard.data + static_cast<std::size_t>(tiles.first_row(tile)) * shard.row_stride_bytes,
                      .rows = static_cast<std::size_t>(rows),
                      .row_bytes = tiles.row_bytes(peers.rank),
                      .stride_bytes = shard.row_stride_bytes};
  };
  const int count = tiles.tiles(peers.rank);
  if (!on_gpu()) {
    for (int step = 1; step < peers.size; ++step)
      for (int tile = 0; tile < count; ++tile)
        tiles_.send_by(transfers, (peers.rank + peers.size - step) % peers.size, tile,
                       rows_from(tile, tiles.rows(peers.rank, tile)));
    return;
  }
  constexpr std::size_t kChunkBytes = std::size_t{8} << 20;  // of a link of some 400 GB/s they take 20 us
  const auto of_chunk = static_cast<int>(std::max<std::size_t>(1, kChunkBytes / call.slots.tile_bytes));
  for (int first = 0; first < count; first += of_chunk) {
    const int in_chunk = std::min(of_chunk, count - first);
    if constexpr (kHaveCuda) claim_tiles_sm90(call, first, in_chunk, transfers);
    for (int step = 1; step < peers.size; ++step) {
      const int to = (peers.rank + peers.size - step) % peers.size;
      // Whole tiles lie one after the other where their buffers do.
      if (static_cast<std::size_t>(tiles.tile_rows) * tiles.row_bytes(peers.rank) == call.slots.tile_bytes) {
        const std::int64_t left = tiles.shard_rows(peers.rank) - tiles.first_row(first);
        tiles_.put_by(transfers, to, first, rows_from(first, std::min(left, in_chunk * tiles.tile_rows)));
        continue;
      }
      for (int tile = first; tile < first + in_chunk; ++tile)
        tiles_.put_by(transfers, to, tile, rows_from(tile, tiles.rows(peers.rank, tile)));
    }
    if constexpr (kHaveCuda) fill_tiles_sm90(call, first, in_chunk, transfers);
  }
}

void AllGatherLinear::enqueue_transfers(const GatherCall& call, int transfer_sms, Stream& transfers) const {
  const AllGatherLinearParams& params = call.params;
  const ShardTiles& tiles = call.tiles;
  const OwnShard shard = shard_of(call);
  if (params.variant == GatherVariant::copy) return enqueue_copies(call, shard, transfers);
  if (on_gpu()) {
    if constexpr (kHaveCuda) enqueue_shard_sm90(call, transfer_sms, transfers);
    return;
  }
  const auto produce = [&]<class Producer>(const Producer& producer) {
    transfers.enqueue([this, body = std::make_shared<const Producer>(producer)](ThreadPool&) {
      (*body)(HostThread{}, tiles_.peers());
    });
  };
  if (params.variant == GatherVariant::pull)
    produce(OfferShard{tiles, shard, tiles_.slots()});
  else
    produce(PushShard{tiles, shard, tiles_.slots()});
}

void AllGatherLinear::operator()(const AllGatherLinearParams& params, const Lane& lane, Stream& transfers) {
  check(params, lane, transfers);
  if (params.y.rows == 0 || lane.dry_run != nullptr) return;
  const GatherCall call = call_of(params, lane);
  if constexpr (kHaveCuda)
    if (on_gpu() && is_for_small_m(call)) {
      const Span span(lane.stream, "linear");
      return gather_small_m_sm90(call, whole_rows_.data(), lane);
    }
  // The producer's blocks and the GEMM's are resident side by side; copy engines need no SM, but for their waits.
  const int transfer_sms = std::clamp(params.transfer_sms, 1, std::max(1, lane.num_sms / 2));
  bool sends = tiles_.peers().size > 1;
  if constexpr (kHaveCuda) sends = sends && !(on_gpu() && sends_while_multiplying(call));
  if (sends) {
    ready_.record(lane.stream);
    transfers.wait(ready_);
    const Span span(transfers, "transfer");
    enqueue_transfers(call, transfer_sms, transfers);
  }
  if (sends) sent_.record(transfers);
  if (on_gpu()) {
    const Span span(lane.stream, "linear");
    Lane rest = lane;
    if (sends) rest.num_sms -= params.variant == GatherVariant::copy ? 1 : transfer_sms;
    if constexpr (kHaveCuda) gathered_linear_sm90(call, rest);
  } else {
    const Span span(lane.stream, "linear");
    lane.stream.enqueue([this, call = std::make_shared<const AllGatherLinearParams>(params)](ThreadPool& pool) {
      const GatheredLinear gemm{tiles_of(*call, limits_), tiles_.slots(), tiles_.peers(), *call, whole_rows_.data()};
      if (limits_.sharded == Sharded::rows)
        gemm.over_rows(pool);
      else
        gemm.over_columns(pool);
    });
  }
  if (sends) lane.stream.wait(sent_);
}

}  // namespace heddle
