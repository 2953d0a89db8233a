// Distributed flash decode on Hopper, around attention's decode kernel. In `push` that kernel sends each row of (o, m, l)
// to all ranks where it merges its splits, and ends with rows of y: its blocks wait for other ranks and for each other,
// so all are resident.
#include "fused/flash_decode/flash_decode_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "device/channel_calls.h"
#include "device/enqueue_body.h"
#include "fused/flash_decode/partial.cuh"
#include "kernels/attention/attention_decode_kernel_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr char kDecode[] = "flash_decode";
constexpr int kThreads = 256;  // of kernels that only merge or send

DecodeUnit unit_shape(const AttentionParams& attention) {
  return {.heads = attention.num_heads / attention.kv.num_kv_heads, .value_dim = attention.sum_columns()};
}

// Rows of y from the ranks' parts: a row is a query head of a unit.
struct MergedRows {
  Tensor y;
  int num_kv_heads, head_dim, units, ranks;
  DecodeUnit unit;

  __device__ int count() const { return units * unit.heads; }

  // A warp. part(rank): the unit's.
  template <class Part>
  __device__ void store(const DeviceWarp& warp, int row, const Part& part) const {
    constexpr int kAtOnce = 8, kPerLane = 4;  // parts whose loads are in flight, and elements of each
    const int index = row / unit.heads, head = row % unit.heads;
    const std::int64_t to =
        index / num_kv_heads * y.row_stride + std::int64_t{index % num_kv_heads * unit.heads + head} * head_dim;
    for (int first_d = warp.lane(); first_d < unit.value_dim; first_d += kPerLane * warp.lanes()) {
      const auto column = [&](int i) { return min(first_d + i * warp.lanes(), unit.value_dim - 1); };
      float most = -std::numeric_limits<float>::infinity(), l = 0, o[kPerLane] = {};
      for (int first = 0; first < ranks; first += kAtOnce) {
        float part_m[kAtOnce] = {}, part_l[kAtOnce] = {}, part_o[kAtOnce][kPerLane] = {};
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
          if (first + r >= ranks) continue;
          const float* const from = part(first + r);
          part_m[r] = unit.m(from, head);
          part_l[r] = unit.l(from, head);
#pragma unroll
          for (int i = 0; i < kPerLane; ++i) part_o[r][i] = unit.o(from, head)[column(i)];
        }
        float top = most;
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r)
          if (first + r < ranks && part_l[r] != 0) top = fmaxf(top, part_m[r]);
        const float keep = l == 0 ? 0 : __expf(most - top);
        most = top;
        l *= keep;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) o[i] *= keep;
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
          if (first + r >= ranks || part_l[r] == 0) continue;  // no keys; its m would make a NaN of two infinities
          const float weight = __expf(part_m[r] - top);
          l = fmaf(part_l[r], weight, l);
#pragma unroll
          for (int i = 0; i < kPerLane; ++i) o[i] = fmaf(part_o[r][i], weight, o[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        if (first_d + i * warp.lanes() < unit.value_dim)
          store_element(y.data, to + column(i), y.dtype, l == 0 ? 0 : o[i] / l);
    }
  }
};

MergedRows rows_of_ranks(const AttentionParams& attention, int ranks) {
  return {.y = attention.y,
          .num_kv_heads = attention.kv.num_kv_heads,
          .head_dim = attention.kv.head_dim,
          .units = static_cast<int>(attention.y.rows) * attention.kv.num_kv_heads,
          .ranks = ranks,
          .unit = unit_shape(attention)};
}

// f(rank), as a thread each, for the ranks of a team, the next one first. The lanes of `group` share them.
template <Group G, class F>
__device__ void for_ranks(const G& group, const Peers& peers, const F& f) {
  for (int i = group.lane(); i < peers.size; i += group.lanes()) f((peers.rank + 1 + i) % peers.size);
}

// Rows of y from parts that arrive in this rank's slots.
struct ArrivingRows {
  DecodeExchange exchange;
  MergedRows rows;

  // Rows first, first + step, ...: a warp.
  __device__ void merge(int first, int step) const {
    const DeviceWarp warp;
    const TileSlots& slots = exchange.slots;
    const Peers& peers = exchange.peers;
    for (int row = first; row < rows.count(); row += step) {
      const int index = row / rows.unit.heads;
      bool here = true;
      for_ranks(warp, peers, [&](int rank) {
        here = here && await_full(DeviceThread{}, peers, rank, slots.channel, index, "decode: part");
      });
      if (!agree(warp, here)) return;
      rows.store(warp, row, [&](int rank) { return reinterpret_cast<const float*>(slots.arriving(rank, index)); });
      warp.sync();
      for_ranks(warp, peers, [&](int rank) {
        give_back(DeviceThread{}, peers, rank, slots.channel, index, static_cast<std::uint64_t>(rows.unit.heads));
      });
    }
  }
};

// Where the decode kernel's rows go (attention_decode_output_sm90.cuh): at once to this rank's slots at all ranks.
struct PushedRows {
  ArrivingRows arriving;

  struct Row {
    const Peers* peers;
    sm90::SumsOfHead own;

    __device__ void store(int d, const sm90::MergedRow& sums) const {
      for_ranks(DeviceThread{}, *peers, [&](int rank) {
        sm90::SumsOfHead{peers->at(rank, own.o), peers->at(rank, own.m), peers->at(rank, own.l)}.store(d, sums);
      });
    }
  };

  static __device__ int unit_of(const sm90::DecodeParams& params, const sm90::DecodeSplit& split) {
    return split.first_token * params.attention.kv.num_kv_heads + split.kv_head;
  }

  __device__ Row row(const sm90::DecodeParams& params, const sm90::DecodeSplit& split, int row) const {
    return {&arriving.exchange.peers, sm90::SumsOfUnits::row(params, split, row)};
  }

  // The other ranks' merges of the last call must have read the slots.
  __device__ bool may_store(const sm90::DecodeParams& params, const sm90::DecodeSplit& split) const {
    if (!sm90::stores_rows(params, split)) return true;
    const DeviceWarps consumers = sm90::decode_consumers();
    const Peers& peers = arriving.exchange.peers;
    bool free = true;
    for_ranks(consumers, peers, [&](int rank) {
      free = free && await_credit(DeviceThread{}, peers, rank, arriving.exchange.slots.channel, unit_of(params, split),
                                  "decode: credit");
    });
    return agree(consumers, free);
  }

  template <Group G>
  __device__ void stored(const G& group, const sm90::DecodeParams& params, const sm90::DecodeSplit& split,
                         int fours) const {
    group.sync();
    const DecodeUnit& unit = arriving.rows.unit;
    for_ranks(group, arriving.exchange.peers, [&](int rank) {
      fill_part(DeviceThread{}, arriving.exchange.peers, rank, arriving.exchange.slots.channel, unit_of(params, split),
                static_cast<std::uint64_t>(unit.heads * unit.value_dim / 4), static_cast<std::uint64_t>(fours));
    });
  }

  __device__ void finish(const sm90::DecodeParams& /*params*/) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, blocks = static_cast<int>(gridDim.x);
    arriving.merge(warp * blocks + static_cast<int>(blockIdx.x), sm90::kDecodeWarps * blocks);
  }
};

// Sends this rank's parts, a tile at a time.
struct SendParts {
  DecodeExchange exchange;
  int units;

  template <VotingGroup G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
#ifdef __CUDA_ARCH__
    const TileSlots& slots = exchange.slots;
    const Peers& peers = exchange.peers;
    for (int step = 1; step <= peers.size; ++step)  // itself last
      for (int index = group.block(); index < units; index += group.blocks()) {
        const int to = (peers.rank + step) % peers.size;
        if (!claim(group, peers, to, slots.channel, index, "decode: credit")) return;
        std::byte* const part = slots.arriving(peers.rank, index);  // at every rank at the same place
        if (to != peers.rank) put(group, peers, to, part, part, slots.tile_bytes);
        fill(group, peers, to, slots.channel, index);
      }
#endif
  }
};

__global__ void await_all_parts(const __grid_constant__ DecodeExchange exchange, int units) {
  const Peers& peers = exchange.peers;
  for (int i = static_cast<int>(threadIdx.x); i < peers.size * units; i += static_cast<int>(blockDim.x))
    if (!await_full(DeviceThread{}, peers, i / units, exchange.slots.channel, i % units, "decode: parts")) return;
}

__device__ int warp_of_grid() {
  return DeviceWarp{}.block();
}
__device__ int warps_of_grid() {
  return DeviceWarp{}.blocks();
}

__global__ void __launch_bounds__(kThreads) merge_slots(const __grid_constant__ ArrivingRows arriving) {
  arriving.merge(warp_of_grid(), warps_of_grid());
}

__global__ void __launch_bounds__(kThreads)
    merge_whole_parts(const __grid_constant__ MergedRows rows, AttentionSums parts, std::size_t of_rank) {
  for (int row = warp_of_grid(); row < rows.count(); row += warps_of_grid())
    rows.store(DeviceWarp{}, row, [&](int rank) {
      const std::byte* const unit = reinterpret_cast<const std::byte*>(parts.unit(row / rows.unit.heads));
      return reinterpret_cast<const float*>(unit + static_cast<std::size_t>(rank) * of_rank);
    });
}

LaunchShape merge_shape(const MergedRows& rows, const Lane& lane) {
  const int blocks = ceil_div(rows.units * rows.unit.heads, kThreads / 32);
  return {.grid = dim3(static_cast<unsigned>(std::min(blocks, lane.num_sms))),
          .block = dim3(kThreads),
          .programmatic = false,
          .fit = GridFit::resident};
}

}  // namespace

bool push_decode_takes(const AttentionParams& attention) {
  return attention_decode_takes(attention) && attention.num_heads / attention.kv.num_kv_heads <= kMostDecodeRows;
}

void push_decode_sm90(const AttentionParams& attention, const DecodeExchange& exchange, const Lane& lane) {
  sm90::launch_decode(attention, kMostDecodeRows, lane,
                      PushedRows{{exchange, rows_of_ranks(attention, exchange.peers.size)}});
}

void send_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream) {
  constexpr int kMostBlocks = 8;
  enqueue_body(stream, {.blocks = std::min(units, kMostBlocks), .threads = kThreads}, SendParts{exchange, units});
}

void await_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream) {
  launch_sm90(kDecode, await_all_parts, {.grid = dim3(1), .block = dim3(kThreads), .programmatic = false}, stream,
              exchange, units);
}

void merge_slots_sm90(const AttentionParams& attention, const DecodeExchange& exchange, const Lane& lane) {
  const MergedRows rows = rows_of_ranks(attention, exchange.peers.size);
  launch_sm90(kDecode, merge_slots, merge_shape(rows, lane), lane, ArrivingRows{exchange, rows});
}

void merge_parts_sm90(const AttentionParams& attention, std::size_t of_rank, int ranks, const Lane& lane) {
  const MergedRows rows = rows_of_ranks(attention, ranks);
  launch_sm90(kDecode, merge_whole_parts, merge_shape(rows, lane), lane, rows, attention.sums, of_rank);
}

}  // namespace heddle
