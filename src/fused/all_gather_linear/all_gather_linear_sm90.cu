// All-gather + GEMM on Hopper: the persistent GEMM of tile_gemm_sm90.cuh, whose loading thread waits for the slots that
// a tile of C needs, and a plain kernel for dtypes and alignments that TMA does not take. By push two warps of each of
// its blocks send this rank's shard while the others multiply. Clusters of the GEMM wait for producers of other ranks,
// never for each other, so the GEMM's blocks and the producers' must all be resident: both are sized by the caller's
// lane.
#include "fused/all_gather_linear/all_gather_linear_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/channel_calls.h"
#include "fused/all_gather_linear/produce.cuh"
#include "fused/tile_gemm_sm90.cuh"
#include "fused/tile_output_sm90.cuh"
#include "kernels/linear/grouped_tiles.h"

namespace heddle {
namespace {

constexpr char kGather[] = "all_gather_linear";
constexpr int kMostMaps = 16;          // ranks whose tiles TMA loads: a tensor map each, as kernel parameters
constexpr int kTokensTogether = 2048;  // whose tiles are taken together, column by column, so that L2 holds W's

// Where tiles of a rank's shard lie for this one: its own shard, the inbox (push, copy) or the owner's outbox (pull).
HEDDLE_HOST_DEVICE const std::byte* tiles_of_rank(const TileSlots& slots, const Peers& peers, GatherVariant variant,
                                                  int owner) {
  return variant == GatherVariant::pull ? peers.at(owner, slots.offered(0)) : slots.arriving(owner, 0);
}

// A tile of C: rows of one shard, or, over columns, of all of A; or, with no rows, the part of a block for which no
// rows are left.
struct GatherItem {
  int owner;               // of its rows; over columns none
  std::int64_t first_row;  // in the shard
  std::int64_t first_y_row;
  int rows;  // that exist
  int first_w_row;
};

template <class T, class TileShape>
struct GatherWork {
  using Item = GatherItem;

  CUtensorMap x[kMostMaps];  // of each rank's tiles; the own shard is one layer
  CUtensorMap w;
  ShardTiles tiles;
  TileSlots slots;
  Peers peers;
  PushParts own;  // what this rank sends of its shard
  TileOutput<T> y;
  int box_rows;  // of another rank's X, per TMA load
  int row_tiles, column_tiles;

  static constexpr int kRows = TileShape::kRows, kColumns = TileShape::kColumns, kCluster = TileShape::kCluster;

  // Row tiles of a cluster's blocks are side by side. Over rows, those of one rank stay together, so that this rank's
  // are multiplied while the others' are on their way.
  HEDDLE_HOST_DEVICE GroupedTiles order() const {
    const std::int64_t of_owner = tiles.of_rows ? tiles.shards.count(peers.rank) : kTokensTogether,
                       together = (of_owner < kTokensTogether ? of_owner : kTokensTogether) / (kRows * kCluster);
    return {.rows = (row_tiles + kCluster - 1) / kCluster,
            .columns = column_tiles,
            .together = together > 1 ? static_cast<int>(together) : 1};
  }
  HEDDLE_HOST_DEVICE int count() const { return order().count(); }
  __device__ const CUtensorMap& w_map() const { return w; }

  // Row tiles in the order of the owners from this rank on.
  __device__ Item at(int index, int rank) const {
    const GroupedTiles::Place place = order().at(index);
    return at_tile(place.row * kCluster + rank, place.column * kColumns);
  }
  __device__ Item at_tile(int row_tile, int column) const {
    if (row_tile >= row_tiles)
      return {.owner = peers.rank, .first_row = 0, .first_y_row = 0, .rows = 0, .first_w_row = column};
    int owner = peers.rank;
    if (tiles.of_rows)
      for (;; owner = owner + 1 == peers.size ? 0 : owner + 1) {
        const auto of_owner = static_cast<int>((tiles.shards.count(owner) + kRows - 1) / kRows);
        if (row_tile < of_owner) break;
        row_tile -= of_owner;
      }
    const std::int64_t first_row = std::int64_t{row_tile} * kRows,
                       left = (tiles.of_rows ? tiles.shards.count(owner) : tiles.other) - first_row;
    return {.owner = owner,
            .first_row = first_row,
            .first_y_row = first_row + (tiles.of_rows ? tiles.shards.begin(owner) : 0),
            .rows = static_cast<int>(left < kRows ? left : kRows),
            .first_w_row = column};
  }

  // Calls f(owner) for the ranks that have a part of the item's k, this rank first.
  template <class F>
  __device__ void each_part(const Item& item, F f) const {
    if (tiles.of_rows) return f(item.owner);
    for (int step = 0; step < peers.size; ++step) {
      const int owner = (peers.rank + step) % peers.size;
      if (tiles.columns(owner) > 0) f(owner);
    }
  }
  static __device__ int steps_of(std::int64_t columns) {
    return static_cast<int>((columns + tile_gemm::kDepth - 1) / tile_gemm::kDepth);
  }
  __device__ int steps(const Item& item) const {
    int sum = 0;
    each_part(item, [&](int owner) { sum += steps_of(tiles.columns(owner)); });
    return sum;
  }

  // The slots that hold the item's rows.
  __device__ int first_slot(const Item& item) const { return static_cast<int>(item.first_row / tiles.tile_rows); }
  __device__ int last_slot(const Item& item) const {
    return static_cast<int>((item.first_row + item.rows - 1) / tiles.tile_rows);
  }
  // Items that read a slot of `owner`.
  __device__ std::uint64_t readers(int owner, int slot) const {
    const std::int64_t first = tiles.first_row(slot), last = first + tiles.rows(owner, slot) - 1;
    return static_cast<std::uint64_t>(last / kRows - first / kRows + 1) * static_cast<std::uint64_t>(column_tiles);
  }

  template <class Load>
  __device__ void each_step(const Item& item, const Load& load) const {
    each_part(item, [&](int owner) {
      const bool own = owner == peers.rank;
      if (!own && item.rows > 0) {
        for (int slot = first_slot(item); slot <= last_slot(item); ++slot)
          static_cast<void>(await_full(DeviceThread{}, peers, owner, slots.channel, slot, "gather: tile"));
        sm90::fence_async_proxy_of_all_memory();
      }
      const int rows_of_box = own ? kRows : box_rows, boxes = (item.rows + rows_of_box - 1) / rows_of_box;
      const auto bytes = static_cast<std::uint32_t>(boxes * rows_of_box * TileShape::X::kRowBytes);
      const auto w_begin = static_cast<int>(tiles.of_rows ? 0 : tiles.shards.begin(owner));
      const int end = static_cast<int>(tiles.columns(owner));
      for (int k = 0; k < end; k += tile_gemm::kDepth)
        load(bytes, w_begin + k, [&](std::uint32_t to, std::uint32_t full) {
          for (int box = 0; box < boxes; ++box) {
            const std::int64_t row = item.first_row + box * rows_of_box, slot = own ? 0 : row / tiles.tile_rows;
            sm90::copy_layer_box(to + static_cast<std::uint32_t>(box * rows_of_box * TileShape::X::kRowBytes), x[owner],
                                 k, static_cast<int>(row - slot * tiles.tile_rows), static_cast<int>(slot), full);
          }
        });
    });
  }

  template <VotingGroup G>
  __device__ void send(const G& group) const {
    own(group, peers, tiles, slots);
  }

  __device__ void before_store(const Item&) const {}
  __device__ void after_store(const Item& item) const {
    if (item.rows == 0) return;
    each_part(item, [&](int owner) {
      if (owner == peers.rank) return;
      for (int slot = first_slot(item); slot <= last_slot(item); ++slot)
        give_back(DeviceWarp{}, peers, owner, slots.channel, slot, readers(owner, slot));
    });
  }

  template <int kSums, std::size_t kBytes>
  __device__ void store(const Item& item, const tile_gemm::Part& part, const float (&sums)[kSums],
                        tile_gemm::Staging<kBytes> staging) const {
    y.store(item.first_y_row, item.first_w_row, item.rows, part, sums, staging);
  }
  __device__ void finish_stores() const { y.finish(); }
};

template <class T, class TileShape>
__global__ void __launch_bounds__(TileShape::kThreads, 1)
    gather_tiles(const __grid_constant__ GatherWork<T, TileShape> work, const __grid_constant__ KernelWaits waits) {
  tile_gemm::run<T, TileShape>(work, waits);
}

std::int64_t row_tiles_of(const ShardTiles& tiles, int rows) {
  if (!tiles.of_rows) return ceil_div<std::int64_t>(tiles.other, rows);
  std::int64_t sum = 0;
  for (int rank = 0; rank < tiles.shards.ranks; ++rank) sum += ceil_div<std::int64_t>(tiles.shards.count(rank), rows);
  return sum;
}

// Whether boxes of X fit: slots of whole tiles of C or the other way round, in whole groups of eight rows.
bool fits_slots(std::int64_t tile_rows, int rows) {
  return tile_rows % rows == 0 || (rows % tile_rows == 0 && tile_rows % 8 == 0);
}

bool is_for_tiles(const GatherCall& call) {
  const AllGatherLinearParams& p = call.params;
  const DType dtype = p.weight.dtype;
  if (dtype == DType::float32 || p.x.dtype != dtype || !rows_are_aligned(p.weight) || call.peers.size > kMostMaps ||
      !fits_slots(call.tiles.tile_rows, 64) || !fits_slots(call.tiles.tile_rows, 128))
    return false;
  if (p.x.data != nullptr && !rows_are_aligned(p.x)) return false;
  for (int rank = 0; rank < call.peers.size; ++rank)
    if (call.tiles.columns(rank) % 8 != 0) return false;
  return true;
}

}  // namespace

bool sends_while_multiplying(const GatherCall& call) {
  return call.params.variant == GatherVariant::push && call.peers.size > 1 && is_for_tiles(call);
}

namespace {

// So that each block has a part to send.
int parts_of_tile(const ShardTiles& tiles, int rank, int blocks) {
  const int count = std::max(1, tiles.tiles(rank));
  return static_cast<int>(std::clamp<std::int64_t>(blocks / count, 1, tiles.tile_rows));
}

template <class T, class TileShape>
void enqueue_tiles(const GatherCall& call, const Lane& lane) {
  const AllGatherLinearParams& p = call.params;
  const ShardTiles& tiles = call.tiles;
  GatherWork<T, TileShape> work{
      .tiles = tiles,
      .slots = call.slots,
      .peers = call.peers,
      .y = tile_output_of<T>(kGather, p.y, p.weight.bias),
      .box_rows = static_cast<int>(std::min<std::int64_t>(TileShape::kRows, tiles.tile_rows)),
      .column_tiles = static_cast<int>(ceil_div<std::int64_t>(p.y.columns, TileShape::kColumns))};
  const auto boxes = [&](const void* data, std::int64_t rows, std::int64_t columns, std::int64_t stride, int box_rows) {
    return sm90::MatrixBoxes{.data = data,
                             .rows = static_cast<std::uint64_t>(rows),
                             .columns = static_cast<std::uint64_t>(columns),
                             .row_stride = static_cast<std::uint64_t>(stride),
                             .box_rows = static_cast<std::uint32_t>(box_rows),
                             .box_columns = tile_gemm::kDepth,
                             .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                             .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
  };
  for (int rank = 0; rank < call.peers.size; ++rank) {
    if (tiles.tiles(rank) == 0) continue;
    const std::int64_t columns = tiles.columns(rank);
    // A slot has no room for tile_rows where no shard has as many.
    const auto room = static_cast<std::int64_t>(call.slots.tile_bytes / tiles.row_bytes(rank));
    work.x[rank] =
        rank == call.peers.rank
            ? sm90::layered_map(kGather, boxes(p.x.data, p.x.rows, columns, p.x.row_stride, TileShape::kRows), 1,
                                static_cast<std::uint64_t>(p.x.row_stride) * 2)
            : sm90::layered_map(kGather,
                                boxes(tiles_of_rank(call.slots, call.peers, p.variant, rank),
                                      std::min(tiles.tile_rows, room), columns, columns, work.box_rows),
                                static_cast<std::uint64_t>(tiles.tiles(rank)), call.slots.tile_bytes);
  }
  work.row_tiles = static_cast<int>(row_tiles_of(tiles, TileShape::kRows));
  work.w = sm90::tensor_map(kGather, boxes(p.weight.row(0), p.weight.out_features, p.weight.in_features,
                                           p.weight.in_features, TileShape::kWBoxRows));
  LaunchShape shape{.block = dim3(TileShape::kThreads),
                    .shared_bytes = tile_gemm::shared_bytes<TileShape>(),
                    .cluster = TileShape::kCluster,
                    .fit = GridFit::resident};
  const int clusters = std::min(
      clusters_on(kGather, reinterpret_cast<const void*>(&gather_tiles<T, TileShape>), shape, lane), work.count());
  shape.grid = dim3(static_cast<unsigned>(clusters * TileShape::kCluster));
  if (sends_while_multiplying(call))
    work.own = {shard_of(call), parts_of_tile(tiles, call.peers.rank, clusters * TileShape::kCluster)};
  launch_sm90(kGather, gather_tiles<T, TileShape>, shape, lane, work,
              KernelWaits{.limit = call.peers.waits, .tag = "gather: GEMM"});
}

// Rounds of tiles times a round's time: with the best tile the SMs end first. Where there is one round, tiles of other
// ranks' rows wait for all of a transfer (a quarter of a round, measured).
double time_of(const GatherTile& tile, const GatherCall& call, const Lane& lane) {
  const std::int64_t items = ceil_div<std::int64_t>(row_tiles_of(call.tiles, tile.rows), tile.cluster) *
                             ceil_div<std::int64_t>(call.params.y.columns, tile.columns);
  const std::int64_t rounds = ceil_div<std::int64_t>(items, std::max(1, lane.num_sms / tile.cluster));
  const double waits = rounds == 1 && call.tiles.of_rows && call.peers.size > 1 ? 0.25 : 0;
  return (static_cast<double>(rounds) + waits) * tile.round;
}

// Of kGatherTiles. Blocks of a cluster need SMs side by side. Where kernels of other ranks or lanes hold some of them,
// clusters might not find as many as they have been given.
int tile_for(const GatherCall& call, const Lane& lane) {
  const auto can_take = [&](int i) { return kGatherTiles[i].cluster == 1 || call.alone; };
  constexpr int kTiles = std::size(kGatherTiles);
  if (const int wanted = call.params.tile; wanted >= 0 && wanted < kTiles && can_take(wanted)) return wanted;
  int best = kTiles - 1;
  for (int i = 0; i < kTiles; ++i)
    if (can_take(i) && time_of(kGatherTiles[i], call, lane) < time_of(kGatherTiles[best], call, lane)) best = i;
  return best;
}

template <class T, std::size_t... kIndices>
void enqueue_tile(int tile, const GatherCall& call, const Lane& lane, std::index_sequence<kIndices...>) {
  const auto enqueue = [&]<std::size_t i>() {
    constexpr GatherTile kTile = kGatherTiles[i];
    enqueue_tiles<T, tile_gemm::Shape<kTile.rows, kTile.columns, kTile.cluster>>(call, lane);
  };
  static_cast<void>(((static_cast<int>(kIndices) == tile && (enqueue.template operator()<kIndices>(), true)) || ...));
}

template <class T>
void enqueue_for_rows(const GatherCall& call, const Lane& lane) {
  const std::int64_t rows = call.tiles.of_rows ? call.tiles.shards.largest() : call.tiles.other;
  if (rows > 64)
    return enqueue_tile<T>(tile_for(call, lane), call, lane, std::make_index_sequence<std::size(kGatherTiles)>{});
  const std::int64_t tiles =
      ceil_div<std::int64_t>(call.params.y.rows, 64) * ceil_div<std::int64_t>(call.params.y.columns, 128);
  if (tiles >= lane.num_sms) return enqueue_tiles<T, tile_gemm::Shape<64, 128>>(call, lane);
  enqueue_tiles<T, tile_gemm::Shape<64, 64>>(call, lane);
}

// Any dtypes and alignment: a warp per row of W, a lane every 32nd element.
constexpr int kPlainThreads = 256, kPlainRows = 8;  // rows of A that share what a warp reads of W

struct PlainGather {
  ShardTiles tiles;
  TileSlots slots;
  Peers peers;
  Tensor x;
  const void* weight;
  DType weight_dtype;
  KernelOutput y;
  GatherVariant variant;

  __device__ std::int64_t k() const { return tiles.of_rows ? tiles.other : tiles.shards.total(); }

  // f(owner): the parts of k of tile `tile` of `owner`.
  template <class F>
  __device__ void each_part(int owner, F f) const {
    if (tiles.of_rows) return f(owner);
    for (int step = 0; step < peers.size; ++step)
      if (const int part = (peers.rank + step) % peers.size; tiles.tiles(part) > 0) f(part);
  }

  __device__ void multiply(int owner, int tile, std::int64_t first, int count, std::int64_t w_row) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sums[kPlainRows] = {};
    each_part(owner, [&](int part) {
      const std::int64_t columns = tiles.columns(part);
      const bool own = part == peers.rank;
      const void* from = own ? x.data : tiles_of_rank(slots, peers, variant, part) + tile * slots.tile_bytes;
      const std::int64_t stride = own ? x.row_stride : columns, row = first + (own ? tiles.first_row(tile) : 0),
                         w_first = w_row * k() + (tiles.of_rows ? 0 : tiles.shards.begin(part));
      for (std::int64_t i = lane; i < columns; i += 32) {
        const float w = load_element(weight, w_first + i, weight_dtype);
#pragma unroll
        for (int r = 0; r < kPlainRows; ++r)
          if (r < count) sums[r] = fmaf(load_element(from, (row + r) * stride + i, x.dtype), w, sums[r]);
      }
    });
    const std::int64_t y_row = first + tiles.first_row(tile) + (tiles.of_rows ? tiles.shards.begin(owner) : 0);
#pragma unroll
    for (int r = 0; r < kPlainRows; ++r) {
      float sum = sums[r];
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (lane == 0 && r < count) y.store(y_row + r, w_row, sum);
    }
  }

  // All blocks take all tiles; each has some rows of W. False: a wait has given up.
  __device__ bool take_tile(int owner, int tile) const {
    const DeviceBlock block;
    bool here = true;
    each_part(owner, [&](int part) {
      here = here && (part == peers.rank || await_full(block, peers, part, slots.channel, tile, "gather: tile"));
    });
    if (!here) return false;
    const auto rows = static_cast<int>(tiles.of_rows ? tiles.rows(owner, tile)
                                                     : min(tiles.tile_rows, tiles.other - tiles.first_row(tile)));
    constexpr int kWarps = kPlainThreads / 32;
    for (std::int64_t w_row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; w_row < y.columns;
         w_row += std::int64_t{gridDim.x} * kWarps)
      for (int first = 0; first < rows; first += kPlainRows)
        multiply(owner, tile, first, min(kPlainRows, rows - first), w_row);
    each_part(owner, [&](int part) {
      if (part != peers.rank) give_back(block, peers, part, slots.channel, tile, gridDim.x);
    });
    return true;
  }

  __device__ void operator()() const {
    if (!tiles.of_rows) {
      for (int tile = 0; tile * tiles.tile_rows < tiles.other; ++tile)
        if (!take_tile(peers.rank, tile)) return;
      return;
    }
    for (int step = 0; step < peers.size; ++step) {
      const int owner = (peers.rank + step) % peers.size;
      for (int tile = 0; tile < tiles.tiles(owner); ++tile)
        if (!take_tile(owner, tile)) return;
    }
  }
};

__global__ void __launch_bounds__(kPlainThreads) gather_plain(const __grid_constant__ PlainGather gather) {
  gather();
}

void enqueue_plain(const GatherCall& call, const Lane& lane) {
  const AllGatherLinearParams& p = call.params;
  const PlainGather gather{.tiles = call.tiles,
                           .slots = call.slots,
                           .peers = call.peers,
                           .x = p.x,
                           .weight = p.weight.row(0),
                           .weight_dtype = p.weight.dtype,
                           .y = output_of(p.y, p.weight.bias),
                           .variant = p.variant};
  const auto wanted = static_cast<int>(ceil_div<std::int64_t>(p.y.columns, kPlainThreads / 32));
  launch_sm90(kGather, gather_plain,
              {.grid = dim3(static_cast<unsigned>(std::min(lane.num_sms, wanted))),
               .block = dim3(kPlainThreads),
               .programmatic = false,
               .fit = GridFit::resident},
              lane, gather);
}

}  // namespace

void gathered_linear_sm90(const GatherCall& call, const Lane& lane) {
  if (!is_for_tiles(call)) return enqueue_plain(call, lane);
  with_16_bit_element(call.params.weight.dtype, [&]<class T>() { enqueue_for_rows<T>(call, lane); });
}

}  // namespace heddle
