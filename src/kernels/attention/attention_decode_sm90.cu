// Attention for few new tokens and many keys: a stream of keys and values past queries that stay in registers. One
// block a multiprocessor takes its share of all tiles, as the step's plan says (attention_decode_plan_sm90.cu): one
// warp has the copy engine fetch tiles some ahead, and four warps multiply sixteen keys of each with all queries that
// read them, each with a softmax of its own; the four are merged at the end of a segment. Where a cluster has an item
// to itself, each of its blocks merges some elements of all parts, which the others push into its shared memory.
// Otherwise the block that has the last part merges all, in the blocks' order, when it has nothing else to do; blocks
// that have nothing else anyway share the rows. Where parts go in global memory there are zeros before, and no number
// is stored as zero (hide()): a part needs no flag and no fence, what it is made of says that it is there. Blocks wait
// for each other when they have done their own parts, in a grid that is resident as a whole (attention_decode_grid.h).
#include "kernels/attention/attention_decode_sm90.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/launch_sm90.cuh"
#include "device/per_device.h"
#include "kernels/attention/attention_decode_grid.h"
#include "kernels/attention/attention_decode_merge_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_decode_sums_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/attention/attention_sm90_tiles.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels

constexpr int kMostItemRows = 16;

// More than half of a multiprocessor's shared memory, so that no two blocks share one: else those multiprocessors that
// the kernel ahead leaves first get two, and others none. Most need more than that anyway.
constexpr std::size_t kLeastSharedBytesOfDecode = std::size_t{116} << 10;

// Has the page table of a sequence that is the only one come nearer while the plan says which part of it matters.
__device__ void look_ahead(const PagedSequences& sequences) {
  constexpr int kPagesOfLine = 128 / sizeof(std::int32_t);
  const int at = static_cast<int>(threadIdx.x) % 32 * kPagesOfLine;
  if (sequences.num_sequences != 1 || at >= sequences.page_table_stride) return;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(sequences.pages(0) + at));
}

// Has the tiles of this block's segments fetched, in their order. One warp.
template <class Shared>
__device__ void fetch_tiles(const DecodeParams& params, const CUtensorMap& key_map, const CUtensorMap& value_map,
                            Shared& shared) {
  using KeyTile = typename Shared::KeyTile;
  const PagedKv& kv = params.attention.kv;
  const PagedSequences& sequences = params.attention.sequences;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = min(kv.page_size, 64);  // of a box
  const int boxes = kDecodeKeys / rows;    // of a tile, in a column block
  const int boxes_of_page = kv.page_size / rows;
  const int copies = 2 * KeyTile::kColumnBlocks * boxes;  // <= 32: a lane does one
  const int box = lane % boxes, block = lane / boxes % KeyTile::kColumnBlocks;
  const bool is_value = lane >= KeyTile::kColumnBlocks * boxes;
  const std::uint32_t box_bytes = static_cast<std::uint32_t>(rows * KeyTile::kRowBytes);

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  look_ahead(sequences);
  RingProducer<Shared::kStages> at;
  bool has_fetched = false;
  DecodeSegments segments(params);
  DecodeSegment segment;
  bool lets_start_late = false;
  while (segments.take(segment)) {
    // In clusters keys are few and multiprocessors left over: there the next kernel would ask for its weights before
    // this one has asked for all its keys. Otherwise it finds no room before this one ends, and may be launched at
    // once.
    lets_start_late = segment.share == DecodeShare::cluster;
    if (params.cluster > 1 && !lets_start_late) let_later_kernels_start();
    const std::int32_t* page_table = sequences.pages(segment.sequence);
    const int end_box = (segment.context_len + rows - 1) / rows, first_box = segment.first_key / rows;
    // Page numbers of 32 boxes, one a lane, and of the 32 that follow.
    const auto pages_from = [&](int from) {
      return from + lane >= first_box && from + lane < end_box ? page_table[(from + lane) / boxes_of_page] : 0;
    };
    int window = segment.begin * boxes;
    std::int32_t pages = pages_from(window), next_pages = pages_from(window + 32);
    for (int tile = segment.begin; tile < segment.end; ++tile, at.advance()) {
      if (tile * boxes >= window + 32) {
        window += 32;
        pages = next_pages;
        next_pages = pages_from(window + 32);
      }
      if (!may_read_all && (tile + 1) * kDecodeKeys > segment.context_len - segment.num_new) {
        wait_for_earlier_kernels();  // for the new tokens' keys
        may_read_all = true;
      }
      const int this_box = tile * boxes + box;
      const std::int32_t page = __shfl_sync(~0u, pages, this_box - window);
      const bool copy = lane < copies && this_box >= first_box && this_box < end_box;
      has_fetched = true;
      shared.ring.wait_until_empty(at, params.waits);
      const auto bytes = static_cast<std::uint32_t>(__popc(__ballot_sync(~0u, copy))) * box_bytes;
      if (lane == 0) shared.ring.full(at).arrive_expecting(bytes);
      __syncwarp();
      if (copy) {
        auto& stage = shared.stages[at.slot()];
        const std::byte* to =
            (is_value ? stage.values : stage.keys) + block * KeyTile::kBlockBytes + box * rows * KeyTile::kRowBytes;
        const int row = (page * kv.num_kv_heads + segment.kv_head) * kv.page_size + this_box % boxes_of_page * rows;
        copy_box(shared_address(to), is_value ? value_map : key_map, block * KeyTile::kBoxColumns, row,
                 shared.ring.full(at).address());
      }
    }
  }
  if (lets_start_late || !has_fetched) let_later_kernels_start();
  if (!may_read_all) wait_for_earlier_kernels();
}

// Multiplies what fetch_tiles brings. One of kDecodeWarps warps; it takes keys [16 * warp, 16 * warp + 16) of each
// tile. Scores and outputs are formed transposed, keys or elements by rows, so that eight rows fill a tensor core's
// columns.
template <class T, class Shared>
__device__ void multiply_tiles(const DecodeParams& params, Shared& shared) {
  constexpr int kHeadDim = Shared::kHeadDim, kRowGroups = Shared::kRowGroups;
  using KeyTile = typename Shared::KeyTile;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Tensor& q = params.attention.q;
  const int window = params.attention.window;

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  RingConsumer<Shared::kStages> at;
  bool merges = false;  // an item of which other blocks have parts
  DecodeSegment to_merge;
  DecodeSegments segments(params);
  for (DecodeSegment segment; segments.take(segment);) {
    const int rows = rows_of(params, segment), first_row = segment.row_tile * params.item_rows;
    if (!may_read_all) wait_for_earlier_kernels();  // for q
    may_read_all = true;

    std::uint32_t queries[kRowGroups][kHeadDim / 16][2];
    int last_key[kRowGroups][2];  // that the rows see
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n) {
      const int row = 8 * n + lane / 4, known_row = min(row, rows - 1);
      const std::int64_t first = element_of(q, params, segment, known_row, lane % 4 * 2);
      with_element(q.dtype, [&]<class Q>() {  // one switch for many loads: all are in flight at once
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
        last_key[n][r] = segment.context_len - segment.num_new +
                         (first_row + min(8 * n + lane % 4 * 2 + r, rows - 1)) / params.group;
    }
    const int all_see_from = window > 0 ? segment.context_len - window : 0;  // up to the first new token's position

    RowSums<kHeadDim, kRowGroups> sums;
    sums.clear();
    for (int tile = segment.begin; tile < segment.end; ++tile, at.advance()) {
      auto& stage = shared.stages[at.slot()];
      const std::uint32_t keys = shared_address(stage.keys), values = shared_address(stage.values);
      shared.ring.wait_until_full(at, params.waits);

      // Two sums a group, of even and odd steps: half as long to wait.
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
      std::uint32_t first_values[4][4];                            // under way while scores become weights
      const auto load_values = [&](int i, std::uint32_t(&m)[4]) {  // keys 0-7, elements 0-7 and 8-15, then keys 8-15
        load_matrices_transposed(
            values + KeyTile::offset(16 * warp + lane / 16 * 8 + lane % 8, 16 * i + lane / 8 % 2 * 8), m);
      };

      const int position = tile * kDecodeKeys + 16 * warp;
      const bool at_edge = position + 15 > segment.context_len - segment.num_new || position < all_see_from;
      if (at_edge) {
        // Nothing is known of slots without tokens, and 0 * NaN is NaN.
        for (int key = 0; key < 16; ++key) {
          if (position + key < segment.context_len && position + key >= segment.first_key) continue;
          for (int d = 8 * lane; d < kHeadDim; d += 8 * 32)
            *reinterpret_cast<uint4*>(stage.values + KeyTile::offset(16 * warp + key, d)) = make_uint4(0, 0, 0, 0);
        }
        fence_async_proxy();  // the next copy into this stage comes after these writes
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
      __syncwarp();
      if (lane == 0) shared.ring.empty(at).arrive();
    }
    finish_segment(params, segment, sums, shared);
    if (segment.share != DecodeShare::cluster && !segment.whole() &&
        parts_behind(segment) < mergers_of(params, segment)) {
      merges = true;
      to_merge = segment;
    }
  }
  if (!may_read_all) wait_for_earlier_kernels();
  if (merges) merge_parts<kHeadDim, Shared>(params, to_merge);
}

template <class T, class Shared>
__global__ void __launch_bounds__(kDecodeThreads + 32, 1)
    attention_decode(const __grid_constant__ DecodeParams params, const __grid_constant__ CUtensorMap key_map,
                     const __grid_constant__ CUtensorMap value_map) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  if (params.cluster == 1) let_later_kernels_start();
  if (shared_address(shared_bytes) % 1024 != 0) __trap();  // swizzling goes by addresses; no room is spent on aligning
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
    multiply_tiles<T>(params, shared);
  else
    fetch_tiles(params, key_map, value_map, shared);
}

// How many clusters the device, the current one, holds with a block an SM: where two blocks share one, they come last.
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

// Of the kernel and its shared memory: found once for each device, so that a plan and the kernel have the same answer.
template <class T, class Shared>
const ClustersAtOnce& clusters_of_kernel(const LaunchShape& shape, Device device) {
  static PerDevice<ClustersAtOnce> clusters;
  return clusters.get(device, [&] {
    const CurrentDevice current(device.index);
    return clusters_at_once(attention_decode<T, Shared>, shape, device);
  });
}

bool takes_kv(const PagedKv& kv) {
  return with_head_dim(kv.head_dim, [](auto) {}) && copied_by_boxes(kv);
}

}  // namespace

bool attention_decode_takes(const AttentionParams& params) {
  return takes_kv(params.kv) && rows_aligned_to(params.q, 2) && rows_aligned_to(params.y, 4);
}

std::size_t attention_decode_scratch_bytes(int head_dim) {
  return kMaxDecodeBlocks * 2 * kMostItemRows * (static_cast<std::size_t>(head_dim) + 2) * sizeof(std::uint32_t);
}

namespace {

// Calls f(kernel, launch shape, decode params) for the kernel that takes these shapes.
template <class F>
void with_decode_kernel(const AttentionParams& params, int max_rows, const Lane& lane, F f) {
  const Device device = lane.stream.device();
  const int group = params.num_heads / params.kv.num_kv_heads;
  const int most_rows = params.sequences.max_query_len * group;  // of a sequence; if too many, think of single tokens
  const bool few_rows = (most_rows <= max_rows ? most_rows : group) <= kFewestItemRows;
  DecodeParams decode{.attention = params,
                      .score_scale = params.scale * static_cast<float>(M_LOG2E),
                      .group = group,
                      .max_rows = max_rows,
                      .item_rows = few_rows ? kFewestItemRows : kMostItemRows,
                      .parts = static_cast<std::uint32_t*>(params.scratch),
                      .waits = waits_of(lane.stream, "attn. decode")};
  const int row_tiles = (std::min(most_rows, max_rows) + decode.item_rows - 1) / decode.item_rows;
  const int items = params.sequences.num_sequences * params.kv.num_kv_heads * row_tiles;
  const auto with_shared = [&]<class T, class Shared>() {
    static_assert(sizeof(Shared) <= std::size_t{227} << 10);
    LaunchShape shape{.block = dim3(kDecodeThreads + 32),
                      .shared_bytes = std::max(sizeof(Shared), kLeastSharedBytesOfDecode),
                      .fit = GridFit::resident};
    const DecodeGrid grid = decode_grid(clusters_of_kernel<T, Shared>(shape, device), params.sequences.num_sequences,
                                        items, lane.num_sms, lane.num_other_sms());
    decode.cluster = grid.cluster;
    shape.cluster = static_cast<unsigned>(grid.cluster);
    shape.grid = dim3(static_cast<unsigned>(grid.blocks));
    f(attention_decode<T, Shared>, shape, decode);
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

}  // namespace

std::size_t attention_decode_plan_bytes(int max_sequences, int num_kv_heads, int max_rows) {
  const int most_items = (max_rows + kFewestItemRows - 1) / kFewestItemRows;  // of a sequence and KV head
  return (kMaxDecodeBlocks + static_cast<std::size_t>(max_sequences) * static_cast<std::size_t>(num_kv_heads) *
                                 static_cast<std::size_t>(most_items)) *
         sizeof(DecodeSegment);
}

void plan_attention_decode_sm90(const AttentionPlanParams& params, int max_rows, const Lane& lane) {
  if (!takes_kv(params.kv)) return;
  const AttentionParams attention{.kv = params.kv,
                                  .sequences = params.sequences,
                                  .num_heads = params.num_heads,
                                  .window = params.window,
                                  .older_keys = params.older_keys};
  with_decode_kernel(attention, max_rows, lane,
                     [&](auto /*kernel*/, const LaunchShape& shape, const DecodeParams& decode) {
                       plan_decode(decode, static_cast<int>(shape.grid.x), params.plan, lane);
                     });
}

void attention_decode_sm90(const AttentionParams& params, int max_rows, const Lane& lane) {
  // Boxes are of lines of 128 bytes: with 256 each would bring its neighbour, which another box asks for again.
  constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  const CUtensorMap keys = page_map(params.kv, params.kv.keys, kPromotion);
  const CUtensorMap values = page_map(params.kv, params.kv.values, kPromotion);
  with_decode_kernel(params, max_rows, lane, [&](auto kernel, const LaunchShape& shape, const DecodeParams& decode) {
    launch_sm90("attention", kernel, shape, lane, decode, keys, values);
  });
}

}  // namespace heddle
