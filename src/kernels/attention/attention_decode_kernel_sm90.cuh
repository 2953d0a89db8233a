// Attention for few new tokens of a sequence and many keys, as a kernel whose results go to an output
// (attention_decode_output_sm90.cuh): streams keys and values past queries that stay in registers, with keys split over
// blocks (split-KV). One block per SM processes the splits of the step's plan
// (attention_decode_plan_sm90.cu).
//
// A producer warp loads tiles by TMA. Each of four consumer warps multiplies sixteen keys of a tile by all queries that
// read them and keeps its own softmax; the block merges the four at the end of a split.
//
// Where a cluster has an item to itself, its blocks push partial results into each other's shared memory, and each
// merges some elements. Otherwise partial results go through global memory. The block with the last split merges them
// in the order of the blocks when it has no other split left; blocks with one split each share the rows. The memory
// holds zeros before, and no number is stored as zero (hide()), so a partial result needs neither flag nor fence:
// nonzero words have arrived. Blocks wait for each other only after their own splits, in a grid that is resident as a
// whole (attention_decode_grid.h).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "device/per_device.h"
#include "kernels/attention/attention_decode_grid.h"
#include "kernels/attention/attention_decode_merge_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_decode_sums_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/attention/attention_sm90_tiles.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kMostItemRows = 16;

// More than half of an SM's shared memory, so that each SM has one block. Otherwise the SMs that the previous kernel
// leaves first would get two blocks, and others none. Most configurations need more anyway.
inline constexpr std::size_t kLeastSharedBytesOfDecode = std::size_t{116} << 10;

// Prefetches the page table of a single sequence while the plan is read that says which part of it matters.
__device__ inline void prefetch_page_table(const PagedSequences& sequences) {
  constexpr int kPagesOfLine = 128 / sizeof(std::int32_t);
  const int at = static_cast<int>(threadIdx.x) % 32 * kPagesOfLine;
  if (sequences.num_sequences != 1 || at >= sequences.page_table_stride) return;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(sequences.pages(0) + at));
}

// Loads the tiles of this block's splits by TMA, in order. One warp.
template <class Shared>
__device__ void load_tiles(const DecodeParams& params, const CUtensorMap& key_map, const CUtensorMap& value_map,
                           Shared& shared) {
  using KeyTile = typename Shared::KeyTile;
  const PagedKv& kv = params.attention.kv;
  const PagedSequences& sequences = params.attention.sequences;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = min(kv.page_size, 64);  // per TMA box
  const int boxes = kDecodeKeys / rows;    // per tile and column block
  const int boxes_of_page = kv.page_size / rows;
  const int copies = 2 * KeyTile::kColumnBlocks * boxes;  // <= 32: one per lane
  const int box = lane % boxes, block = lane / boxes % KeyTile::kColumnBlocks;
  const bool is_value = lane >= KeyTile::kColumnBlocks * boxes;
  const std::uint32_t box_bytes = static_cast<std::uint32_t>(rows * KeyTile::kRowBytes);

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  prefetch_page_table(sequences);
  RingProducer<Shared::kStages> at;
  bool has_loaded = false;
  DecodeSplits splits(params);
  DecodeSplit split;
  bool lets_start_late = false;
  while (splits.take(split)) {
    // With clusters, keys are few and SMs idle: the next kernel would load its weights before this one has issued its
    // loads, so it starts late. Otherwise the next kernel finds no free SM before this one ends, and may start at once.
    lets_start_late = split.kind == SplitKind::cluster;
    if (params.cluster > 1 && !lets_start_late) let_later_kernels_start();
    const std::int32_t* page_table = sequences.pages(split.sequence);
    const int end_box = ceil_div(split.context_len, rows), first_box = split.first_key / rows;
    // Page words of 32 boxes, one per lane, and of the 32 after them.
    const auto pages_from = [&](int from) {
      return from + lane >= first_box && from + lane < end_box ? page_table[(from + lane) / boxes_of_page] : 0;
    };
    int window = split.begin * boxes;
    std::int32_t pages = pages_from(window), next_pages = pages_from(window + 32);
    for (int tile = split.begin; tile < split.end; ++tile, at.advance()) {
      if (tile * boxes >= window + 32) {
        window += 32;
        pages = next_pages;
        next_pages = pages_from(window + 32);
      }
      if (!may_read_all && (tile + 1) * kDecodeKeys > split.context_len - split.num_new) {
        wait_for_earlier_kernels();  // for the new tokens' keys
        may_read_all = true;
      }
      const int this_box = tile * boxes + box;
      const std::int32_t page = __shfl_sync(~0u, pages, this_box - window);
      const bool copy = lane < copies && this_box >= first_box && this_box < end_box;
      has_loaded = true;
      shared.ring.wait_until_empty(at, params.waits);
      const auto bytes = static_cast<std::uint32_t>(__popc(__ballot_sync(~0u, copy))) * box_bytes;
      if (lane == 0) shared.ring.full(at).arrive_expecting(bytes);
      __syncwarp();
      if (copy) {
        auto& stage = shared.stages[at.slot()];
        const std::byte* to =
            (is_value ? stage.values : stage.keys) + block * KeyTile::kBlockBytes + box * rows * KeyTile::kRowBytes;
        const int row = (page * kv.num_kv_heads + split.kv_head) * kv.page_size + this_box % boxes_of_page * rows;
        copy_box(shared_address(to), is_value ? value_map : key_map, block * KeyTile::kBoxColumns, row,
                 shared.ring.full(at).address());
      }
    }
  }
  if (lets_start_late || !has_loaded) let_later_kernels_start();
  if (!may_read_all) wait_for_earlier_kernels();
}

// Multiplies the tiles that load_tiles() loads. One of kDecodeWarps warps; it takes keys [16 * warp, 16 * warp + 16) of
// each tile. Scores and outputs are computed transposed, with keys or elements as rows, so that eight query rows fill
// the N dimension of mma.sync.
template <class T, class Shared, class Output>
__device__ void multiply_tiles(const DecodeParams& params, Shared& shared, const Output& output) {
  constexpr int kHeadDim = Shared::kHeadDim, kRowGroups = Shared::kRowGroups;
  using KeyTile = typename Shared::KeyTile;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Tensor& q = params.attention.q;
  const int window = params.attention.window;

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  RingConsumer<Shared::kStages> at;
  bool merges = false, may_store_merged = false;  // an item that other blocks share
  DecodeSplit to_merge;
  DecodeSplits splits(params);
  for (DecodeSplit split; splits.take(split);) {
    const int rows = rows_of(params, split), first_row = split.row_tile * params.item_rows;
    if (!may_read_all) wait_for_earlier_kernels();  // for q
    may_read_all = true;

    std::uint32_t queries[kRowGroups][kHeadDim / 16][2];
    int last_key[kRowGroups][2];  // that the rows see
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n) {
      const int row = 8 * n + lane / 4, known_row = min(row, rows - 1);
      const std::int64_t first = element_of(q, params, split, known_row, lane % 4 * 2);
      with_element(q.dtype, [&]<class Q>() {  // one switch for all loads, so that they are in flight together
        const Q* from = static_cast<const Q*>(q.data) + first;
#pragma unroll
        for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 pair = load_pair(from + 16 * k + 8 * half);
            queries[n][k][half] = row < rows ? pack<T>(pair.x, pair.y) : 0;
          }
        }
      });
#pragma unroll
      for (int r = 0; r < 2; ++r)
        last_key[n][r] =
            split.context_len - split.num_new + (first_row + min(8 * n + lane % 4 * 2 + r, rows - 1)) / params.group;
    }
    const bool may_store = output.may_store(params, split);                // while the first tile is on its way
    const int all_see_from = window > 0 ? split.context_len - window : 0;  // up to the first new token's position

    RowSums<kHeadDim, kRowGroups> sums;
    sums.clear();
    for (int tile = split.begin; tile < split.end; ++tile, at.advance()) {
      auto& stage = shared.stages[at.slot()];
      const std::uint32_t keys = shared_address(stage.keys), values = shared_address(stage.values);
      shared.ring.wait_until_full(at, params.waits);

      // Two sums per group, of even and odd steps, halve the latency.
      float s[kRowGroups][4] = {}, odd[kRowGroups][4] = {};
      constexpr int kSteps = kHeadDim / 16, kAtOnce = std::min(kSteps, 8);
#pragma unroll
      for (int k = 0; k < kSteps; k += kAtOnce) {
        std::uint32_t m[kAtOnce][4];  // elements 0-7, keys 0-7 and 8-15, then elements 8-15
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          load_matrices(keys + KeyTile::offset(16 * warp + lane % 16, 16 * (k + i) + lane / 16 * 8), m[i]);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
          for (int n = 0; n < kRowGroups; ++n)
            multiply_add<T>(i % 2 == 0 ? s[n] : odd[n], m[i], queries[n][k + i][0], queries[n][k + i][1]);
      }
      std::uint32_t first_values[4][4];                            // in flight during the softmax
      const auto load_values = [&](int i, std::uint32_t(&m)[4]) {  // keys 0-7, elements 0-7 and 8-15, then keys 8-15
        load_matrices_transposed(
            values + KeyTile::offset(16 * warp + lane / 16 * 8 + lane % 8, 16 * i + lane / 8 % 2 * 8), m);
      };

      const int position = tile * kDecodeKeys + 16 * warp;
      const bool at_edge = position + 15 > split.context_len - split.num_new || position < all_see_from;
      if (at_edge) {
        // Slots without tokens may hold NaN, and 0 * NaN is NaN.
        for (int key = 0; key < 16; ++key) {
          if (position + key < split.context_len && position + key >= split.first_key) continue;
          for (int d = 8 * lane; d < kHeadDim; d += 8 * 32)
            *reinterpret_cast<uint4*>(stage.values + KeyTile::offset(16 * warp + key, d)) = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) load_values(i, first_values[i]);

      std::uint32_t weights[kRowGroups][2];
#pragma unroll
      for (int n = 0; n < kRowGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = (s[n][i] + odd[n][i]) * params.score_scale;
          const int key = position + lane / 4 + i / 2 * 8, last = last_key[n][i % 2];
          if (at_edge && (key > last || key < (window > 0 ? last - window + 1 : 0))) s[n][i] = -INFINITY;
        }
        sums.weigh(s[n], n);
        weights[n][0] = transpose(pack<T>(s[n][0], s[n][1]));
        weights[n][1] = transpose(pack<T>(s[n][2], s[n][3]));
      }
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i) {
        std::uint32_t m[4];
        if (i >= 4) load_values(i, m);
#pragma unroll
        for (int n = 0; n < kRowGroups; ++n)
          multiply_add<T>(sums.o[n][i], i < 4 ? first_values[i % 4] : m, weights[n][0], weights[n][1]);
      }
      fence_async_proxy();  // orders this tile's reads and zeros before the next TMA load into this stage
      __syncwarp();
      if (lane == 0) shared.ring.empty(at).arrive();
    }
    finish_split(params, split, sums, shared, output, may_store);
    if (split.kind != SplitKind::cluster && !split.whole() && blocks_after(split) < mergers_of(params, split)) {
      merges = true;
      may_store_merged = may_store;
      to_merge = split;
    }
  }
  if (!may_read_all) wait_for_earlier_kernels();
  if (merges) merge_partials<kHeadDim, Shared>(params, to_merge, output, may_store_merged);
  output.finish(params);
}

template <class T, class Shared, class Output>
__global__ void __launch_bounds__(kDecodeThreads + 32, 1)
    attention_decode(const __grid_constant__ DecodeParams params, const __grid_constant__ CUtensorMap key_map,
                     const __grid_constant__ CUtensorMap value_map, const __grid_constant__ Output output) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  if (params.cluster == 1) let_later_kernels_start();
  if (shared_address(shared_bytes) % 1024 != 0)
    __trap();  // the swizzle follows address bits; aligning here would cost shared memory
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == kDecodeThreads) {
    prefetch_map(key_map);
    prefetch_map(value_map);
    shared.ring.init({.producers = 1, .consumers = kDecodeWarps});
    shared.all_pushed.init(1);
    publish_barriers();
  }
  __syncthreads();
  if (params.cluster > 1) arrive_at_cluster();
  if (threadIdx.x < kDecodeThreads)
    multiply_tiles<T>(params, shared, output);
  else
    load_tiles(params, key_map, value_map, shared);
}

// How many clusters the current device holds with one block per SM: it places two blocks on an SM last.
template <class... Params>
ClustersAtOnce clusters_at_once(void (*kernel)(Params...), const LaunchShape& shape, Device device) {
  constexpr std::size_t kMoreThanHalf = 128 << 10;  // of an SM's shared memory
  ClustersAtOnce found{};
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = clusters_of_device("attention", reinterpret_cast<const void*>(kernel),
                                  {.block = shape.block,
                                   .shared_bytes = std::max(shape.shared_bytes, kMoreThanHalf),
                                   .cluster = static_cast<unsigned>(kClusterBlocks[i])},
                                  device);
  return found;
}

// Queried once per kernel, shared memory and device. The plan and the kernels of all outputs get the same answer: with one
// block per SM, only threads and shared memory decide.
template <class T, class Shared, class Output>
const ClustersAtOnce& clusters_of_kernel(const LaunchShape& shape, Device device) {
  static PerDevice<ClustersAtOnce> clusters;
  return clusters.get(device, [&] {
    const CurrentDevice current(device.index);
    return clusters_at_once(attention_decode<T, Shared, Output>, shape, device);
  });
}

// Calls f(kernel, launch shape, decode params) for the kernel that takes these shapes.
template <class Output, class F>
void with_decode_kernel(const AttentionParams& params, int max_rows, const Lane& lane, F f) {
  const Device device = lane.stream.device();
  const int group = params.num_heads / params.kv.num_kv_heads;
  const int most_rows = params.sequences.max_query_len * group;  // per sequence; above max_rows, single tokens decide
  const bool few_rows = (most_rows <= max_rows ? most_rows : group) <= kFewestItemRows;
  DecodeParams decode{.attention = params,
                      .score_scale = params.scale * static_cast<float>(M_LOG2E),
                      .group = group,
                      .max_rows = max_rows,
                      .item_rows = few_rows ? kFewestItemRows : kMostItemRows,
                      .partials = static_cast<std::uint32_t*>(params.scratch),
                      .waits = waits_of(lane.stream, "attn. decode")};
  const int row_tiles = ceil_div(std::min(most_rows, max_rows), decode.item_rows);
  const int items = params.sequences.num_sequences * params.kv.num_kv_heads * row_tiles;
  const auto with_shared = [&]<class T, class Shared>() {
    static_assert(sizeof(Shared) <= std::size_t{227} << 10);
    LaunchShape shape{.block = dim3(kDecodeThreads + 32),
                      .shared_bytes = std::max(sizeof(Shared), kLeastSharedBytesOfDecode),
                      .fit = GridFit::resident};
    const DecodeGrid grid = decode_grid(clusters_of_kernel<T, Shared, Output>(shape, device),
                                        params.sequences.num_sequences, items, lane.num_sms, lane.num_other_sms());
    decode.cluster = grid.cluster;
    shape.cluster = static_cast<unsigned>(grid.cluster);
    shape.grid = dim3(static_cast<unsigned>(grid.blocks));
    f(attention_decode<T, Shared, Output>, shape, decode);
  };
  const auto with_stages = [&]<class T, int kHeadDim, int kRowGroups>() {
    constexpr int kStages = decode_stages<kHeadDim>(kDecodeStageKib);
    constexpr int kStagesOfOne = decode_stages<kHeadDim>(kDecodeStageKibOfOne);
    if (params.sequences.num_sequences == 1)
      with_shared.template operator()<T, DecodeShared<kHeadDim, kRowGroups, kStagesOfOne>>();
    else
      with_shared.template operator()<T, DecodeShared<kHeadDim, kRowGroups, kStages>>();
  };
  with_16_bit_element(params.kv.dtype, [&]<class T>() {
    with_head_dim(params.kv.head_dim, [&](auto head_dim) {
      constexpr int kHeadDim = decltype(head_dim)::value;
      if (few_rows)
        with_stages.template operator()<T, kHeadDim, kFewestItemRows / 8>();
      else
        with_stages.template operator()<T, kHeadDim, kMostItemRows / 8>();
    });
  });
}

// Enqueues the kernel with this output.
template <class Output>
void launch_decode(const AttentionParams& params, int max_rows, const Lane& lane, const Output& output) {
  // A box row is a line of 128 bytes. A promotion to 256 would load the neighbour too, which another box loads again.
  constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  const CUtensorMap keys = page_map(params.kv, params.kv.keys, kPromotion);
  const CUtensorMap values = page_map(params.kv, params.kv.values, kPromotion);
  with_decode_kernel<Output>(params, max_rows, lane,
                             [&](auto kernel, const LaunchShape& shape, const DecodeParams& decode) {
                               launch_sm90("attention", kernel, shape, lane, decode, keys, values, output);
                             });
}

}  // namespace heddle::sm90
