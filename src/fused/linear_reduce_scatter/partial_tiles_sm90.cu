// GEMM + reduce-scatter and GEMM + all-reduce on Hopper: the persistent GEMM of tile_gemm_sm90.cuh forwards each tile
// that another rank sums to that rank's inbox. To its own tiles it adds the others' products in registers. Blocks wait
// for blocks of other ranks, so all of them are resident; in the order of schedule/reduce_order.h none waits in a
// circle.
#include "fused/linear_reduce_scatter/partial_tiles_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/channel_calls.h"
#include "fused/tile_gemm_sm90.cuh"
#include "fused/tile_output_sm90.cuh"
#include "kernels/linear/grouped_tiles.h"
#include "kernels/sm90/elements_sm90.cuh"
#include "schedule/reduce_order.h"

namespace heddle {
namespace {

constexpr char kPartialName[] = "fused linear";

// A part of the sum that one slot holds.
struct SlotItem {
  int owner;  // that sums it
  int row_tile, column_tile;
  std::int64_t first_row;  // in the owner's shard
  int rows, columns;       // that exist
};

// Slots of a call, and its phases after the GEMM.
struct PartialSlots {
  Shards shards;
  TileSlots partials, sums;
  Peers peers;
  KernelOutput y;
  int slot_rows, column_tiles;
  bool to_all;  // an all-reduce: y has the rows of all ranks

  __device__ int row_tiles(int owner) const {
    return static_cast<int>((shards.count(owner) + slot_rows - 1) / slot_rows);
  }
  __device__ int items(int owner) const { return row_tiles(owner) * column_tiles; }
  __device__ int slot(int row_tile, int column_tile) const { return row_tile * column_tiles + column_tile; }
  __device__ int slot(const SlotItem& item) const { return slot(item.row_tile, item.column_tile); }
  __device__ int rows_of(int owner, int row_tile) const {
    const std::int64_t left = shards.count(owner) - std::int64_t{row_tile} * slot_rows;
    return static_cast<int>(left < slot_rows ? left : slot_rows);
  }

  __device__ SlotItem of_owner(int owner, int index) const {
    const int row_tile = index / column_tiles, column_tile = index % column_tiles;
    const std::int64_t left = y.columns - column_tile * kPartialColumns;
    return {.owner = owner,
            .row_tile = row_tile,
            .column_tile = column_tile,
            .first_row = std::int64_t{row_tile} * slot_rows,
            .rows = rows_of(owner, row_tile),
            .columns = static_cast<int>(left < kPartialColumns ? left : kPartialColumns)};
  }

  // Where this rank's product goes, at the rank that sums it.
  __device__ float* product(int owner, int slot) const {
    return reinterpret_cast<float*>(peers.at(owner, partials.arriving(peers.rank, slot)));
  }

  template <VotingGroup G>
  __device__ bool begin_product(const G& group, int owner, int slot) const {
    return claim(group, peers, owner, partials.channel, slot, "reduce: credit");
  }
  template <Group G>
  __device__ void end_product(const G& group, int owner, int slot) const {
    fill(group, peers, owner, partials.channel, slot);
  }

  // The vector's sums to y, as far as y has them.
  __device__ void store(const SlotItem& item, int vector, const float4& sums) const {
    const Fragments::Place place = Fragments::place(vector);
    store_row(item, place.row, place.column, sums.x, sums.y);
    store_row(item, place.row + 8, place.column, sums.z, sums.w);
  }
  __device__ void store_row(const SlotItem& item, int row, int column, float first, float second) const {
    if (row >= item.rows || column >= item.columns) return;
    y.store_pair((to_all ? shards.begin(item.owner) : 0) + item.first_row + row,
                 item.column_tile * kPartialColumns + column, first, second);
  }

  // f(vectors) for the slot's vectors that y has some of, which the group's lanes share: kTogether of them at a time,
  // so that as many loads are in flight; those that there are not are -1.
  static constexpr int kTogether = 4;
  template <Group G, class F>
  __device__ static void each_vectors(const G& group, const SlotItem& item, F f) {
    const int count =
        Fragments::vectors((item.rows + Fragments::kGroupRows - 1) / Fragments::kGroupRows * Fragments::kGroupRows);
    for (int first = group.lane(); first < count; first += kTogether * group.lanes()) {
      int vectors[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int vector = first + i * group.lanes();
        const Fragments::Place place = Fragments::place(vector);
        vectors[i] = vector < count && place.row < item.rows && place.column < item.columns ? vector : -1;
      }
      f(vectors);
    }
  }

  // Adds the ranks' products in rank order, and, in an all-reduce, hands the sums to all ranks. False: a wait has given
  // up.
  template <VotingGroup G>
  __device__ bool sum(const G& group, const SlotItem& item) const {
    const int at = slot(item);
    for (int rank = 0; rank < peers.size; ++rank)
      if (!await_full(group, peers, rank, partials.channel, at, "reduce: tile")) return false;
    if (to_all)
      for (int step = 1; step < peers.size; ++step)
        if (!claim(group, peers, (peers.rank + step) % peers.size, sums.channel, at, "sum: credit")) return false;
    each_vectors(group, item, [&](const int(&vectors)[kTogether]) {
      float4 all[kTogether];
      for (int rank = 0; rank < peers.size; ++rank) {
        const auto* const from = reinterpret_cast<const float4*>(partials.arriving(rank, at));
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (vectors[i] < 0) continue;
          const float4 part = from[vectors[i]];
          all[i] = rank == 0 ? part
                             : make_float4(all[i].x + part.x, all[i].y + part.y, all[i].z + part.z, all[i].w + part.w);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (vectors[i] >= 0) store(item, vectors[i], all[i]);
      if (!to_all) return;
      for (int step = 1; step < peers.size; ++step) {
        auto* const there =
            reinterpret_cast<float4*>(peers.at((peers.rank + step) % peers.size, sums.arriving(peers.rank, at)));
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          if (vectors[i] >= 0) there[vectors[i]] = all[i];
      }
    });
    for (int rank = 0; rank < peers.size; ++rank) give_back(group, peers, rank, partials.channel, at, 1);
    if (to_all)
      for (int step = 1; step < peers.size; ++step)
        fill(group, peers, (peers.rank + step) % peers.size, sums.channel, at);
    return true;
  }

  template <VotingGroup G>
  __device__ bool take_sum(const G& group, const SlotItem& item) const {
    const int at = slot(item);
    if (!await_full(group, peers, item.owner, sums.channel, at, "sum: tile")) return false;
    const auto* const here = reinterpret_cast<const float4*>(sums.arriving(item.owner, at));
    each_vectors(group, item, [&](const int(&vectors)[kTogether]) {
      float4 taken[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (vectors[i] >= 0) taken[i] = here[vectors[i]];
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (vectors[i] >= 0) store(item, vectors[i], taken[i]);
    });
    give_back(group, peers, item.owner, sums.channel, at, 1);
    return true;
  }

  // This rank's slots, whose products all ranks have pushed, this one among them.
  template <VotingGroup G>
  __device__ bool sum_all(const G& group) const {
    for (int index = static_cast<int>(blockIdx.x); index < items(peers.rank); index += static_cast<int>(gridDim.x))
      if (!sum(group, of_owner(peers.rank, index))) return false;
    return true;
  }
  // Of an all-reduce: the sums of all other ranks.
  template <VotingGroup G>
  __device__ void take_sums(const G& group) const {
    for (int step = 1; step < peers.size; ++step) {
      const int owner = (peers.rank + step) % peers.size;
      for (int index = static_cast<int>(blockIdx.x); index < items(owner); index += static_cast<int>(gridDim.x))
        if (!take_sum(group, of_owner(owner, index))) return;
    }
  }
};

// A tile of C: neighbouring slots of a row tile; or, with no rows, the part of a block for which no rows are left.
struct PartialItem {
  int owner;
  int slot, slots;  // the first one, and how many
  int rows;         // that exist
  int first_x_row, first_w_row;
  std::int64_t first_y_row;  // of this rank's own
};

// The threads that multiply leave a block's sums of a tile that others take in `products`, which L2 holds, and multiply
// on; a relay takes them to the others' inboxes.
template <class T, class TileShape>
struct PartialWork {
  using Item = PartialItem;

  CUtensorMap x, w;
  TileOutput<T> y;
  PartialSlots slots;
  const float* bias;
  float4* products;  // [blocks][kForwardBuffers][kSlotsOfTile][kVectorsOfSlot]
  int k_steps;

  static constexpr int kSlotsOfTile = TileShape::kColumns / Fragments::kColumns;
  static constexpr int kVectorsOfSlot = Fragments::vectors(TileShape::kRows);
  static constexpr int kForwardBuffers = kSlotsOfTile == 1 ? 2 : 1;
  static_assert(TileShape::kColumns == kSlotsOfTile * Fragments::kColumns);
  // Rows of clusters' tiles, of 2048 tokens, that are taken together, column by column, so that L2 holds W's.
  static constexpr int kTogether = 2048 / (TileShape::kRows * TileShape::kCluster);

  // Those of one owner: row tiles of a cluster's blocks side by side.
  __device__ GroupedTiles tiles(int owner) const {
    return {.rows = (slots.row_tiles(owner) + TileShape::kCluster - 1) / TileShape::kCluster,
            .columns = (slots.column_tiles + kSlotsOfTile - 1) / kSlotsOfTile,
            .together = kTogether};
  }
  __device__ int count() const {
    int all = 0;
    for (int rank = 0; rank < slots.peers.size; ++rank) all += tiles(rank).count();
    return all;
  }
  __device__ Item at(int index, int rank) const {
    const Peers& peers = slots.peers;
    const auto of_owner = [this](int owner) { return tiles(owner).count(); };
    const int own = of_owner(peers.rank);
    const schedule::ReduceOrder order{.ranks = peers.size,
                                      .others = count() - own,
                                      .own = own,
                                      .at_once = static_cast<int>(gridDim.x) / TileShape::kCluster};
    const schedule::ReduceOrder::Tile tile = order.at(index);
    if (tile.own) return at_tile(peers.rank, tile.index, rank);
    const schedule::OwnedTile its = schedule::tile_of_others(peers.size, peers.rank, tile.index, of_owner);
    return at_tile(its.owner, its.tile, rank);
  }
  __device__ Item at_tile(int owner, int index, int rank) const {
    const GroupedTiles::Place place = tiles(owner).at(index);
    const int row_tile = place.row * TileShape::kCluster + rank, column_tile = place.column * kSlotsOfTile,
              columns_left = slots.column_tiles - column_tile;
    return {.owner = owner,
            .slot = slots.slot(row_tile, column_tile),
            .slots = columns_left < kSlotsOfTile ? columns_left : kSlotsOfTile,
            .rows = row_tile < slots.row_tiles(owner) ? slots.rows_of(owner, row_tile) : 0,
            .first_x_row = static_cast<int>(slots.shards.begin(owner)) + row_tile * slots.slot_rows,
            .first_w_row = column_tile * static_cast<int>(kPartialColumns),
            .first_y_row = (slots.to_all ? slots.shards.begin(owner) : 0) + std::int64_t{row_tile} * slots.slot_rows};
  }
  __device__ const CUtensorMap& w_map() const { return w; }
  __device__ int steps(const Item&) const { return k_steps; }

  template <class Load>
  __device__ void each_step(const Item& item, const Load& load) const {
    const bool exists = item.rows > 0;
    for (int k = 0; k < k_steps; ++k)
      load(exists ? TileShape::X::kBytes : 0, k * tile_gemm::kDepth, [&](std::uint32_t to, std::uint32_t full) {
        if (exists) sm90::copy_box(to, x, k * tile_gemm::kDepth, item.first_x_row, full);
      });
  }

  __device__ bool is_own(const Item& item) const { return item.owner == slots.peers.rank; }

  template <class F>
  __device__ void each_other(F f) const {
    for (int step = 1; step < slots.peers.size; ++step) f((slots.peers.rank + step) % slots.peers.size);
  }
  // Who takes the item's sums: f(rank).
  template <class F>
  __device__ void each_receiver(const Item& item, F f) const {
    if (is_own(item))
      each_other(f);
    else
      f(item.owner);
  }
  template <class F>
  __device__ static void each_slot(const Item& item, F f) {
    for (int slot = item.slot; slot < item.slot + item.slots; ++slot) f(slot);
  }

  // The products of all others for an own item, which are added to the sums in registers. A wait that gives up is in
  // the record, and what is stored then is undefined.
  __device__ void before_store(const Item& item) const {
    if (item.rows == 0 || !is_own(item)) return;
    each_other([&](int peer) {
      each_slot(item, [&](int slot) {
        static_cast<void>(await_full(DeviceWarp{}, slots.peers, peer, slots.partials.channel, slot, "reduce: tile"));
      });
    });
  }
  __device__ void after_store(const Item& item) const {
    if (item.rows == 0 || !is_own(item)) return;
    each_other([&](int peer) {
      each_slot(item, [&](int slot) { give_back(DeviceWarp{}, slots.peers, peer, slots.partials.channel, slot, 1); });
    });
  }

  // Products of others' items, and, in an all-reduce, the sums of own ones.
  __device__ bool forwards(const Item& item) const { return item.rows > 0 && (!is_own(item) || slots.to_all); }

  template <class Relay>
  __device__ void forward(const Item& item, int buffer, Relay& relay) const {
    const DeviceWarp warp;
    const Peers& peers = slots.peers;
    const bool own = is_own(item);
    const TileSlots& to = own ? slots.sums : slots.partials;
    const Tag credit = own ? Tag("sum: credit") : Tag("reduce: credit");
    each_receiver(item, [&](int peer) {
      each_slot(item, [&](int slot) { static_cast<void>(claim(warp, peers, peer, to.channel, slot, credit)); });
    });
    if (warp.lane() == 0) {
      sm90::fence_async_proxy_of_all_memory();  // behind what other threads have stored
      const float4* from = products_in(buffer);
      each_slot(item, [&](int slot) {
        relay.copy(reinterpret_cast<const std::byte*>(from), bytes_of(item), [&](auto store) {
          each_receiver(item, [&](int peer) { store(peers.at(peer, to.arriving(peers.rank, slot))); });
        });
        from += kVectorsOfSlot;
      });
      relay.finish();
    }
    __syncwarp();
    each_receiver(item,
                  [&](int peer) { each_slot(item, [&](int slot) { fill(warp, peers, peer, to.channel, slot); }); });
  }
  // Of a slot: of the row groups that have rows.
  static __device__ std::uint32_t bytes_of(const Item& item) {
    return static_cast<std::uint32_t>((item.rows + Fragments::kGroupRows - 1) / Fragments::kGroupRows) *
           Fragments::kVectorsOfGroup * static_cast<std::uint32_t>(sizeof(float4));
  }
  __device__ float4* products_in(int buffer) const {
    constexpr int kVectors = kSlotsOfTile * kVectorsOfSlot;
    return products + std::size_t{blockIdx.x} * (kForwardBuffers * kVectors) + buffer * kVectors;
  }

  template <int kSums, std::size_t kBytes>
  __device__ void store(const Item& item, const tile_gemm::Part& part, float (&sums)[kSums],
                        tile_gemm::Staging<kBytes> staging, int buffer) const {
    if (item.rows == 0) return;
    if (bias != nullptr) add_bias(item, part, sums);
    if (is_own(item)) {
      if (slots.peers.size > 1) add_products(item, part, sums);
      y.store(item.first_y_row, item.first_w_row, item.rows, part, sums, staging);
      if (!slots.to_all) return;
    }
    float4* const to = products_in(buffer) + first_vector(part);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      to[slot_of(i) * kVectorsOfSlot + vector_of(i)] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    sm90::fence_async_proxy_of_all_memory();
  }

  template <int kSums>
  __device__ void add_bias(const Item& item, const tile_gemm::Part& part, float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      const int column = item.first_w_row + part.column(i);
      const std::int64_t n = slots.y.columns;
      const float first = column < n ? bias[column] : 0, second = column + 1 < n ? bias[column + 1] : 0;
      sums[4 * i] += first;
      sums[4 * i + 1] += second;
      sums[4 * i + 2] += first;
      sums[4 * i + 3] += second;
    }
  }

  // Where a thread's sums of every eight columns `i` lie: which of the tile's slots, and the vector there.
  static constexpr int kEightsOfSlot = Fragments::kColumns / 8;
  static_assert(kSlotsOfTile == 1 || TileShape::kColumnGroups == 1);
  static constexpr int slot_of(int i) {
    return kSlotsOfTile == 1 ? 0 : i / kEightsOfSlot;
  }
  static constexpr int vector_of(int i) {
    return Fragments::vector(0, i % kEightsOfSlot, 0);
  }  // behind first_vector()
  static __device__ int first_vector(const tile_gemm::Part& part) {
    return Fragments::vector(part.first_row / Fragments::kGroupRows, part.first_column / 8, tile_gemm::Part::thread());
  }

  // Adds the products of all ranks in rank order. Of two ranks either order has the same bits.
  template <int kSums>
  __device__ void add_products(const Item& item, const tile_gemm::Part& part, float (&sums)[kSums]) const {
    const Peers& peers = slots.peers;
    if (peers.size == 2) return add_product(1 - peers.rank, item, part, sums);
    constexpr int kAtOnce = 4;  // vectors of which loads are in flight
#pragma unroll
    for (int first = 0; first < kSums / 4; first += kAtOnce) {
      if (slot_of(first) >= item.slots) break;
      float all[4 * kAtOnce];
      for (int rank = 0; rank < peers.size; ++rank) {
        float4 its[kAtOnce];
        if (rank != peers.rank) load_product(rank, item, part, first, its);
#pragma unroll
        for (int i = 0; i < 4 * kAtOnce; ++i) {
          const float one = rank == peers.rank ? sums[4 * first + i] : component(its[i / 4], i % 4);
          all[i] = rank == 0 ? one : all[i] + one;
        }
      }
#pragma unroll
      for (int i = 0; i < 4 * kAtOnce; ++i) sums[4 * first + i] = all[i];
    }
  }
  template <int kSums>
  __device__ void add_product(int rank, const Item& item, const tile_gemm::Part& part, float (&sums)[kSums]) const {
    constexpr int kAtOnce = 8;
#pragma unroll
    for (int first = 0; first < kSums / 4; first += kAtOnce) {
      if (slot_of(first) >= item.slots) break;
      float4 its[kAtOnce];
      load_product(rank, item, part, first, its);
#pragma unroll
      for (int i = 0; i < 4 * kAtOnce; ++i) sums[4 * first + i] += component(its[i / 4], i % 4);
    }
  }
  // Of neighbouring eight columns of one slot, from `first` on.
  template <int kCount>
  __device__ void load_product(int rank, const Item& item, const tile_gemm::Part& part, int first,
                               float4 (&its)[kCount]) const {
    static_assert(kEightsOfSlot % kCount == 0);
    const auto* const from =
        reinterpret_cast<const float4*>(slots.partials.arriving(rank, item.slot + slot_of(first))) + first_vector(part);
#pragma unroll
    for (int i = 0; i < kCount; ++i) its[i] = from[vector_of(first + i)];
  }
  static __device__ float component(const float4& vector, int i) {
    return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
  }

  __device__ void finish_stores() const {
    y.finish();
  }
};

// The threads that multiply: all warps behind the first warpgroup.
template <class TileShape>
__device__ DeviceWarps multipliers() {
  constexpr int kBarrier = 1;
  return {tile_gemm::kGroupThreads / 32, TileShape::kMultipliers / 32, kBarrier};
}

template <class T, class TileShape>
__global__ void __launch_bounds__(TileShape::kThreads, 1)
    partial_tiles(const __grid_constant__ PartialWork<T, TileShape> work, const __grid_constant__ KernelWaits waits) {
  const bool multiplies = tile_gemm::run<T, TileShape>(work, waits);
  if (multiplies && work.slots.to_all) work.slots.take_sums(multipliers<TileShape>());
}

// Any dtypes and alignment: a block takes a slot, a thread sums of it.
constexpr int kPlainPartialThreads = 256;

struct LinearOperand {
  const void* data;  // [n, x.columns]
  DType dtype;
  const float* bias;  // null: none
};

__global__ void __launch_bounds__(kPlainPartialThreads)
    partial_plain(const __grid_constant__ PartialSlots slots, const __grid_constant__ Tensor x,
                  const __grid_constant__ LinearOperand w) {
  const DeviceBlock block;
  for (int step = 1; step <= slots.peers.size; ++step) {
    const int owner = (slots.peers.rank + step) % slots.peers.size;
    for (int index = static_cast<int>(blockIdx.x); index < slots.items(owner); index += static_cast<int>(gridDim.x)) {
      const SlotItem item = slots.of_owner(owner, index);
      if (!slots.begin_product(block, owner, slots.slot(item))) return;
      float* const to = slots.product(owner, slots.slot(item));
      const std::int64_t x_row = slots.shards.begin(owner) + item.first_row;
      for (int i = block.lane(); i < item.rows * static_cast<int>(kPartialColumns); i += block.lanes()) {
        const int row = i / static_cast<int>(kPartialColumns), column = i % static_cast<int>(kPartialColumns);
        if (column >= item.columns) continue;
        const std::int64_t w_row = item.column_tile * kPartialColumns + column;
        float sum = 0;
        for (std::int64_t k = 0; k < x.columns; ++k)
          sum = fmaf(load_element(x.data, (x_row + row) * x.row_stride + k, x.dtype),
                     load_element(w.data, w_row * x.columns + k, w.dtype), sum);
        to[Fragments::element(row, column)] = w.bias == nullptr ? sum : sum + w.bias[w_row];
      }
      slots.end_product(block, owner, slots.slot(item));
    }
  }
  if (slots.sum_all(block) && slots.to_all) slots.take_sums(block);
}

PartialSlots slots_of(const PartialCall& call) {
  return {.shards = call.rows,
          .partials = call.partials,
          .sums = call.sums,
          .peers = call.peers,
          .y = output_of(call.y, nullptr),
          .slot_rows = static_cast<int>(call.slot_rows),
          .column_tiles = partial_column_tiles(call.weight.out_features),
          .to_all = call.sums.inbox != nullptr};
}

// Tiles of C, `rows` of which stand side by side in a cluster.
std::int64_t tiles_of(const PartialCall& call, int rows, int columns = 1) {
  std::int64_t tiles = 0;
  for (int rank = 0; rank < call.rows.ranks; ++rank)
    tiles += ceil_div<std::int64_t>(ceil_div(call.rows.count(rank), call.slot_rows), rows);
  return tiles * ceil_div(partial_column_tiles(call.weight.out_features), columns);
}

// Of the GEMM, by the rows of a slot. With 256 columns a block loads 2/3 of the bytes that 128 take for as many
// products. Narrow staging and a small relay leave the ring the slots it needs.
template <int kRows, int kColumns, int kCluster>
using TileOf = tile_gemm::Shape<kRows, kColumns, kCluster, (std::size_t{8} << 10), (std::size_t{16} << 10)>;

bool is_for_partial_tiles(const PartialCall& call) {
  const DType dtype = call.weight.dtype;
  return dtype != DType::float32 && call.x.dtype == dtype && rows_are_aligned(call.x) && rows_are_aligned(call.weight);
}

template <class T, class TileShape>
LaunchShape launch_of() {
  return {.grid = dim3(TileShape::kCluster),
          .block = dim3(TileShape::kThreads),
          .shared_bytes = tile_gemm::shared_bytes<TileShape>(),
          .cluster = TileShape::kCluster,
          .fit = GridFit::resident};
}

template <class T, class TileShape>
void enqueue_partial_tiles(const PartialCall& call, void* products, const Lane& lane) {
  const auto map = [&](const void* data, std::int64_t rows, std::int64_t stride, int box_rows) {
    return sm90::tensor_map(kPartialName, {.data = data,
                                           .rows = static_cast<std::uint64_t>(rows),
                                           .columns = static_cast<std::uint64_t>(call.x.columns),
                                           .row_stride = static_cast<std::uint64_t>(stride),
                                           .box_rows = static_cast<std::uint32_t>(box_rows),
                                           .box_columns = tile_gemm::kDepth,
                                           .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                           .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
  };
  const PartialWork<T, TileShape> work{
      .x = map(call.x.data, call.x.rows, call.x.row_stride, TileShape::kRows),
      .w = map(call.weight.row(0), call.weight.out_features, call.x.columns, TileShape::kWBoxRows),
      .y = tile_output_of<T>(kPartialName, call.y, nullptr),
      .slots = slots_of(call),
      .bias = call.weight.bias,
      .products = reinterpret_cast<float4*>(products),
      .k_steps = static_cast<int>(ceil_div<std::int64_t>(call.x.columns, tile_gemm::kDepth))};
  LaunchShape shape = launch_of<T, TileShape>();
  // All of them are resident: blocks wait for each other.
  const std::int64_t clusters = std::clamp<std::int64_t>(
      tiles_of(call, TileShape::kCluster, TileShape::kColumns / Fragments::kColumns), 1,
      clusters_on(kPartialName, reinterpret_cast<const void*>(&partial_tiles<T, TileShape>), shape, lane));
  shape.grid = dim3(static_cast<unsigned>(clusters * TileShape::kCluster));
  launch_sm90(kPartialName, partial_tiles<T, TileShape>, shape, lane, work,
              KernelWaits{.limit = call.peers.waits, .tag = "reduce: GEMM"});
}

void enqueue_plain_partials(const PartialCall& call, const Lane& lane) {
  const std::int64_t blocks = std::clamp<std::int64_t>(tiles_of(call, 1), 1, lane.num_sms);
  launch_sm90(kPartialName, partial_plain,
              {.grid = dim3(static_cast<unsigned>(blocks)),
               .block = dim3(kPlainPartialThreads),
               .programmatic = false,
               .fit = GridFit::resident},
              lane, slots_of(call), call.x, LinearOperand{call.weight.row(0), call.weight.dtype, call.weight.bias});
}

// Of 128 x 256, which multiply faster: from one and a half rounds of all SMs on, of an all-reduce, whose sums travel
// on, from two. All ranks choose alike, as schedule/reduce_order.h has it: their GPUs and lanes are.
bool is_for_wide_tiles(const PartialCall& call, const Lane& lane) {
  const std::int64_t half_rounds = 2 * tiles_of(call, 1, 2) / num_sms_of(lane.stream.device());
  return half_rounds >= (call.sums.inbox == nullptr ? 3 : 4);
}

// Clusters where they have the whole device.
template <class T>
void enqueue_for_rows(const PartialCall& call, void* products, const Lane& lane) {
  if (call.rows.largest() <= Fragments::kGroupRows)
    enqueue_partial_tiles<T, TileOf<64, 128, 1>>(call, products, lane);
  else if (!call.own_gpus || lane.num_other_sms() > 0)
    enqueue_partial_tiles<T, TileOf<128, 128, 1>>(call, products, lane);
  else if (is_for_wide_tiles(call, lane))
    enqueue_partial_tiles<T, TileOf<128, 256, 2>>(call, products, lane);
  else
    enqueue_partial_tiles<T, TileOf<128, 128, 2>>(call, products, lane);
}

}  // namespace

std::size_t partial_products_bytes(Device device) {
  constexpr std::size_t kMostOfBlock = sizeof(float) * 128 * 256;  // a wide tile, or two narrow ones
  return static_cast<std::size_t>(num_sms_of(device)) * kMostOfBlock;
}

void partial_linear_sm90(const PartialCall& call, void* products, const Lane& lane) {
  if (!is_for_partial_tiles(call)) return enqueue_plain_partials(call, lane);
  with_16_bit_element(call.weight.dtype, [&]<class T>() { enqueue_for_rows<T>(call, products, lane); });
}

}  // namespace heddle
