// Attention for few new tokens and many keys: a stream of keys and values past queries that stay in registers. One
// block a multiprocessor takes an equal share of all tiles of the step (attention_decode_sm90.cuh). In it one warp has
// the copy engine fetch tiles some ahead, and four warps multiply sixteen keys of each with all queries that read them,
// each with a softmax of its own; the four are merged at the end of a segment, and an item's parts, in the blocks'
// order, by the block that has the last of them, when it has nothing else to do. Where parts go there are zeros before,
// and no number is stored as zero (hide()): a part needs no flag and no fence, what it is made of says that it is
// there. A block waits for blocks before it alone, of a grid that fits the device at once (decode_grid()).
#include "kernels/attention_decode_sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/checked.h"
#include "kernels/attention_decode_sm90.cuh"
#include "kernels/attention_sm90_ptx.cuh"
#include "kernels/attention_sm90_rows.cuh"
#include "kernels/attention_sm90_tiles.cuh"
#include "kernels/launch_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels

constexpr int kMaxDecodeBlocks = 256;
constexpr int kMostItemRows = 16;
constexpr int kWarps = kDecodeKeys / 16;  // that multiply
constexpr int kThreads = 32 * kWarps;     // of those
constexpr int kMultipliers = 1;           // the barrier of those
constexpr int kStageKib = 96;
constexpr int kMostOfCluster = 16;  // blocks

// More than half of a multiprocessor's shared memory, so that no two blocks share one: else those multiprocessors that
// the kernel ahead leaves first get two, and others none.
constexpr std::size_t kLeastSharedBytesOfDecode = std::size_t{116} << 10;

// kRowGroups: of eight rows (pairs of new token and query head) that share what is loaded.
template <int kHeadDim, int kRowGroups>
struct DecodeShared {
  using KeyTile = Tile<kDecodeKeys, kHeadDim>;
  static constexpr int kRows = 8 * kRowGroups;
  // All but one are under way while one is multiplied.
  static constexpr int kStages = std::max(2, (kStageKib << 10) / (2 * KeyTile::kBytes));
  static constexpr int kMergeStride = kHeadDim + 4;  // so that warps store fragments without bank conflicts

  struct Stage {
    std::byte keys[KeyTile::kBytes];
    std::byte values[KeyTile::kBytes];
  };
  Stage stages[kStages];
  float o[kWarps][kRows][kMergeStride];
  float largest[kWarps][kRows], sum[kWarps][kRows];
  float largest_of_all[kRows],
      sum_of_all[kRows];  // of this block's part of an item that its cluster shares; o[0] is its o
  std::uint64_t full[kStages], empty[kStages];
};

// The numbers of a part.
template <class Shared, int kHeadDim>
constexpr int part_numbers() {
  return Shared::kRows * (kHeadDim + 2);
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
  int fetched = 0;
  for (DecodeWalk walk(params); !walk.done();) {
    const DecodeSegment segment = walk.next();
    const std::int32_t* page_table = sequences.pages(segment.sequence);
    const int end_box = (segment.of.context_len + rows - 1) / rows, first_box = segment.of.first_key / rows;
    // Page numbers of 32 boxes, one a lane, and of the 32 that follow.
    const auto pages_from = [&](int from) {
      return from + lane >= first_box && from + lane < end_box ? page_table[(from + lane) / boxes_of_page] : 0;
    };
    int window = segment.begin * boxes;
    std::int32_t pages = pages_from(window), next_pages = pages_from(window + 32);
    for (int tile = segment.begin; tile < segment.end; ++tile, ++fetched) {
      if (tile * boxes >= window + 32) {
        window += 32;
        pages = next_pages;
        next_pages = pages_from(window + 32);
      }
      if (!may_read_all && (tile + 1) * kDecodeKeys > segment.of.context_len - segment.of.num_new) {
        wait_for_earlier_kernels();  // for the new tokens' keys
        may_read_all = true;
      }
      const int this_box = tile * boxes + box;
      const std::int32_t page = __shfl_sync(~0u, pages, this_box - window);
      const bool copy = lane < copies && this_box >= first_box && this_box < end_box;
      const auto stage = fetched % Shared::kStages;
      const std::uint32_t full = shared_address(&shared.full[stage]);
      wait_for_phase(shared_address(&shared.empty[stage]), fetched / Shared::kStages % 2 ^ 1);
      const auto bytes = static_cast<std::uint32_t>(__popc(__ballot_sync(~0u, copy))) * box_bytes;
      if (lane == 0) arrive_expecting(full, bytes);
      __syncwarp();
      if (copy) {
        const std::byte* to = (is_value ? shared.stages[stage].values : shared.stages[stage].keys) +
                              block * KeyTile::kBlockBytes + box * rows * KeyTile::kRowBytes;
        const int row = (page * kv.num_kv_heads + segment.kv_head) * kv.page_size + this_box % boxes_of_page * rows;
        copy_box(shared_address(to), is_value ? value_map : key_map, block * KeyTile::kBoxColumns, row, full);
      }
    }
  }
  if (!may_read_all) wait_for_earlier_kernels();
}

// What one warp has of a segment. A lane has rows 8 * n + 2 * (lane % 4) + {0, 1} of each group n: the largest score,
// the sum of its own weights, and in o the sums of weighted values, elements 16 * i + lane / 4 + {0, 8}, as mma lays
// out o^T.
template <int kHeadDim, int kRowGroups>
struct RowSums {
  float largest[kRowGroups][2], sum[kRowGroups][2];
  float o[kRowGroups][kHeadDim / 16][4];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n) {
      largest[n][0] = largest[n][1] = -INFINITY;
      sum[n][0] = sum[n][1] = 0;
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i) o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0;
    }
  }

  // Brings the sums of group n up to the scores s of keys lane / 4 + {0, 8}, which become weights.
  __device__ void weigh(float (&s)[4], int n) {
    float correction[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(s[r], s[2 + r]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      top = fmaxf(top, largest[n][r]);
      const float shift = top == -INFINITY ? 0 : top;  // a row that has seen no key yet
      correction[r] = exp2_approx(largest[n][r] - shift);
      largest[n][r] = top;
      s[r] = exp2_approx(s[r] - shift);
      s[2 + r] = exp2_approx(s[2 + r] - shift);
      sum[n][r] = fmaf(sum[n][r], correction[r], s[r] + s[2 + r]);
    }
    if (__all_sync(~0u, correction[0] == 1 && correction[1] == 1)) return;
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) o[n][i][j] *= correction[j % 2];
  }
};

// Where element d of a row of the segment's item lies in q or y.
__device__ std::int64_t element_of(const Tensor& rows, const DecodeParams& params, const DecodeSegment& segment,
                                   int row, int d) {
  const int index = segment.row_tile * params.item_rows + row;
  const int token = params.attention.sequences.query_start[segment.sequence] + index / params.group;
  const int head = segment.kv_head * params.group + index % params.group;
  return token * rows.row_stride + std::int64_t{head} * params.attention.kv.head_dim + d;
}

__device__ int rows_of(const DecodeParams& params, const DecodeSegment& segment) {
  return min(params.item_rows, segment.of.num_new * params.group - segment.row_tile * params.item_rows);
}

// Some elements of a row: sums of weighted values under the largest score that is known.
struct MergedRow {
  float largest, sum;
  float4 o;

  __device__ float4 average() const { return {o.x / sum, o.y / sum, o.z / sum, o.w / sum}; }
};

// One row from at most kMost parts under different maxima, of which there are `count`: a part's largest score, its sum
// and four of its elements. Loads of several parts are under way at once.
template <int kMost, class LargestOf, class SumOf, class FourOf>
__device__ MergedRow merge_row(int count, LargestOf largest_of, SumOf sum_of, FourOf four_of) {
  constexpr int kAtOnce = std::min(kMost, 8);
  float largest[kMost], sum[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    largest[i] = i < count ? largest_of(i) : -INFINITY;
    sum[i] = i < count ? sum_of(i) : 0;
  }
  float4 o[kAtOnce];
  MergedRow merged{.largest = -INFINITY, .sum = 0, .o = {0, 0, 0, 0}};
#pragma unroll
  for (int first = 0; first < kMost; first += kAtOnce) {
    if (first > 0 && first >= count) break;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) o[i] = first + i < count ? four_of(first + i) : float4{0, 0, 0, 0};
    if (first == 0)
#pragma unroll
      for (int i = 0; i < kMost; ++i) merged.largest = fmaxf(merged.largest, largest[i]);
    const float shift = merged.largest == -INFINITY ? 0 : merged.largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = exp2_approx(largest[first + i] - shift);
      merged.sum = fmaf(weight, sum[first + i], merged.sum);
      merged.o.x = fmaf(weight, o[i].x, merged.o.x);
      merged.o.y = fmaf(weight, o[i].y, merged.o.y);
      merged.o.z = fmaf(weight, o[i].z, merged.o.z);
      merged.o.w = fmaf(weight, o[i].w, merged.o.w);
    }
  }
  return merged;
}

// Stores element d of a row and the three after it.
__device__ void store_merged(const DecodeParams& params, const DecodeSegment& segment, int row, int d, float4 o) {
  const Tensor& y = params.attention.y;
  store_four(y.data, element_of(y, params, segment, row, d), y.dtype, o);
}

// Which of all parts a block's is: of the item that it goes on with, or of the one that it begins.
__device__ std::int64_t part_place(int block, bool begins) {
  return std::int64_t{block} * 2 + (begins ? 1 : 0);
}

// A number as it is stored in a part: any but zero. What stands for zero is a NaN that no instruction makes.
constexpr std::uint32_t kHiddenZero = 0x7fd1a5c3, kOtherNan = 0x7fffffff;

__device__ std::uint32_t hide(float number) {
  const std::uint32_t bits = __float_as_uint(number);
  return (bits == kHiddenZero ? kOtherNan : bits) ^ kHiddenZero;
}
__device__ float reveal(std::uint32_t hidden) {
  return __uint_as_float(hidden ^ kHiddenZero);
}
// Zero where one of them is not there.
__device__ std::uint32_t least_of(const uint4& hidden) {
  return min(min(hidden.x, hidden.y), min(hidden.z, hidden.w));
}

// Brings a row of y, from element `at` on, together from parts, kAtOnce at a time, and leaves zeros. One warp. No part
// of its callers, whose registers are full.
template <int kHeadDim, class Shared>
__device__ __noinline__ void merge_row_of_parts(std::uint32_t* all_parts, int first_part, int last_part, int row,
                                                void* y, std::int64_t at, DType dtype) {
  constexpr int kFours = ceil_div(kHeadDim, 4 * 32);  // groups of four elements of a lane
  constexpr int kAtOnce = kFours == 1 ? 16 : 8;       // parts whose loads are under way
  const int lane = static_cast<int>(threadIdx.x) % 32, count = last_part - first_part + 1;
  const auto part_of = [&](int i) {
    return all_parts + part_place(first_part + i, i == 0) * part_numbers<Shared, kHeadDim>();
  };
  float largest = -INFINITY, sum = 0;
  float4 o[kFours] = {};
  for (int first = 0; first < count; first += kAtOnce) {
    const int here = min(kAtOnce, count - first);
    std::uint32_t* const mine = part_of(first + min(lane, here - 1)) + Shared::kRows * kHeadDim + row;  // a part a lane
    std::uint32_t its_largest = 0, its_sum = 0;
    uint4 its_o[kAtOnce][kFours];
    bool all_there = false;
    for (std::uint32_t tries = 0; !all_there; ++tries) {
      // Seconds: a fault. Blocks wait for those before them alone, and all of the grid fit the device at once.
      if (tries == 1u << 24) __trap();
      its_largest = load_relaxed(mine);
      its_sum = load_relaxed(mine + Shared::kRows);
      std::uint32_t least = min(its_largest, its_sum);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int f = 0; f < kFours; ++f)
          if (i < here)
            its_o[i][f] =
                load_four_relaxed(part_of(first + i) + row * kHeadDim + 4 * min(lane + 32 * f, kHeadDim / 4 - 1));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int f = 0; f < kFours; ++f)
          if (i < here) least = min(least, least_of(its_o[i][f]));
      all_there = __all_sync(~0u, least != 0);
    }
    if (lane < here) {
      store_relaxed(mine, 0);
      store_relaxed(mine + Shared::kRows, 0);
    }
    const float part_largest = lane < here ? reveal(its_largest) : -INFINITY;
    float top = part_largest;
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, largest);
    const float shift = top == -INFINITY ? 0 : top;
    const float correction = exp2_approx(largest - shift), weight = exp2_approx(part_largest - shift);
    float part_sum = lane < here ? reveal(its_sum) * weight : 0;
    for (int step = 16; step > 0; step /= 2) part_sum += __shfl_xor_sync(~0u, part_sum, step);
    sum = fmaf(sum, correction, part_sum);
    largest = top;
#pragma unroll
    for (int f = 0; f < kFours; ++f)
      o[f].x *= correction, o[f].y *= correction, o[f].z *= correction, o[f].w *= correction;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= here) break;
      const float its_weight = __shfl_sync(~0u, weight, i);
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        o[f].x = fmaf(its_weight, reveal(its_o[i][f].x), o[f].x);
        o[f].y = fmaf(its_weight, reveal(its_o[i][f].y), o[f].y);
        o[f].z = fmaf(its_weight, reveal(its_o[i][f].z), o[f].z);
        o[f].w = fmaf(its_weight, reveal(its_o[i][f].w), o[f].w);
        if (lane + 32 * f < kHeadDim / 4)
          store_four_relaxed(part_of(first + i) + row * kHeadDim + 4 * (lane + 32 * f), make_uint4(0, 0, 0, 0));
      }
    }
  }
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    const int d = 4 * (lane + 32 * f);
    if (d < kHeadDim) store_four(y, at + d, dtype, {o[f].x / sum, o[f].y / sum, o[f].z / sum, o[f].w / sum});
  }
}

// y from the item's parts. All multiplying threads; a warp takes a row at a time.
template <int kHeadDim, class Shared>
__device__ void merge_parts(const DecodeParams& params, const DecodeSegment& segment) {
  const Tensor& y = params.attention.y;
  const int rows = rows_of(params, segment);
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kWarps)
    merge_row_of_parts<kHeadDim, Shared>(params.parts, segment.first_part, segment.last_part, row, y.data,
                                         element_of(y, params, segment, row, 0), y.dtype);
}

// y from the parts that the blocks of this cluster have; each block brings together an equal share of its elements. All
// multiplying threads of all blocks of the cluster, whose other threads end without coming here.
template <int kHeadDim, class Shared>
__device__ void merge_in_cluster(const DecodeParams& params, const DecodeSegment& segment, const Shared& shared) {
  arrive_at_cluster();
  wait_for_cluster();
  const int count = segment.last_part - segment.first_part + 1;
  const int rank = static_cast<int>(blockIdx.x) - segment.first_part;
  const int fours = rows_of(params, segment) * (kHeadDim / 4), share = (fours + params.cluster - 1) / params.cluster;
  const int end = min(fours, (rank + 1) * share);
  for (int i = rank * share + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    const auto from = [&](const float& mine, int part) { return address_in_block(shared_address(&mine), part); };
    const MergedRow merged = merge_row<kMostOfCluster>(
        count, [&](int p) { return load_from_cluster(from(shared.largest_of_all[row], p)); },
        [&](int p) { return load_from_cluster(from(shared.sum_of_all[row], p)); },
        [&](int p) { return load_four_from_cluster(from(shared.o[0][row][d], p)); });
    store_merged(params, segment, row, d, merged.average());
  }
  arrive_at_cluster();
  wait_for_cluster();  // nobody ends while others may read what it has
}

// Merges what the warps have of a segment into y, or into a part of y. All multiplying threads.
template <int kHeadDim, int kRowGroups>
__device__ void finish_segment(const DecodeParams& params, const DecodeSegment& segment,
                               const RowSums<kHeadDim, kRowGroups>& sums, DecodeShared<kHeadDim, kRowGroups>& shared) {
  using Shared = DecodeShared<kHeadDim, kRowGroups>;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int rows = rows_of(params, segment);
  if (segment.whole() && segment.begin == segment.end) return;  // another block of the cluster has the item
#pragma unroll
  for (int n = 0; n < kRowGroups; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 8 * n + lane % 4 * 2 + r;
      float sum = sums.sum[n][r];
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane < 4) {
        shared.largest[warp][row] = sums.largest[n][r];
        shared.sum[warp][row] = sum;
      }
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          shared.o[warp][row][16 * i + 8 * half + lane / 4] = sums.o[n][i][2 * half + r];
    }
  }
  sync_threads(kMultipliers, kThreads);

  std::uint32_t* const part =
      params.parts + part_place(static_cast<int>(blockIdx.x), segment.first_part == static_cast<int>(blockIdx.x)) *
                         part_numbers<Shared, kHeadDim>();
  for (int i = thread; i < rows * (kHeadDim / 4); i += kThreads) {
    const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    const MergedRow merged = merge_row<kWarps>(
        kWarps, [&](int w) { return shared.largest[w][row]; }, [&](int w) { return shared.sum[w][row]; },
        [&](int w) { return *reinterpret_cast<const float4*>(&shared.o[w][row][d]); });
    if (segment.whole()) {
      store_merged(params, segment, row, d, merged.average());
    } else if (segment.of_cluster) {
      *reinterpret_cast<float4*>(&shared.o[0][row][d]) = merged.o;  // which no other thread reads
      if (d == 0) {
        shared.largest_of_all[row] = merged.largest;
        shared.sum_of_all[row] = merged.sum;
      }
    } else {
      store_four_relaxed(part + row * kHeadDim + d,
                         make_uint4(hide(merged.o.x), hide(merged.o.y), hide(merged.o.z), hide(merged.o.w)));
      if (d == 0) {
        store_relaxed(part + Shared::kRows * kHeadDim + row, hide(merged.largest));
        store_relaxed(part + Shared::kRows * (kHeadDim + 1) + row, hide(merged.sum));
      }
    }
  }
  if (segment.of_cluster && !segment.whole()) return merge_in_cluster<kHeadDim>(params, segment, shared);
  sync_threads(kMultipliers, kThreads);  // before the next segment's sums are stored
}

// Multiplies what fetch_tiles brings. One of kWarps warps; it takes keys [16 * warp, 16 * warp + 16) of each tile.
// Scores and outputs are formed transposed, keys or elements by rows, so that eight rows fill a tensor core's columns.
template <class T, int kHeadDim, int kRowGroups>
__device__ void multiply_tiles(const DecodeParams& params, DecodeShared<kHeadDim, kRowGroups>& shared) {
  using Shared = DecodeShared<kHeadDim, kRowGroups>;
  using KeyTile = typename Shared::KeyTile;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Tensor& q = params.attention.q;
  const int window = params.attention.window;

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  int taken = 0;
  bool ends_item = false;  // of which blocks before this one have parts: by this block's first segment
  DecodeSegment to_merge;
  for (DecodeWalk walk(params); !walk.done();) {
    const DecodeSegment segment = walk.next();
    const DecodeSequence& of = segment.of;
    const int rows = rows_of(params, segment), first_row = segment.row_tile * params.item_rows;
    if (!may_read_all) wait_for_earlier_kernels();  // for q
    may_read_all = true;

    std::uint32_t queries[kRowGroups][kHeadDim / 16][2];
    int last_key[kRowGroups][2];  // that the rows see
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n) {
      const int row = 8 * n + lane / 4, known_row = min(row, rows - 1);
      const std::int64_t at = element_of(q, params, segment, known_row, lane % 4 * 2);
      with_element_type(q.dtype, [&](auto type) {
        const auto* from = static_cast<decltype(type)>(q.data) + at;
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
            of.context_len - of.num_new + (first_row + min(8 * n + lane % 4 * 2 + r, rows - 1)) / params.group;
    }
    const int all_see_from = window > 0 ? of.context_len - window : 0;  // up to the first new token's position

    RowSums<kHeadDim, kRowGroups> sums;
    sums.clear();
    for (int tile = segment.begin; tile < segment.end; ++tile, ++taken) {
      const int stage = taken % Shared::kStages;
      const std::uint32_t keys = shared_address(shared.stages[stage].keys);
      const std::uint32_t values = shared_address(shared.stages[stage].values);
      wait_for_phase(shared_address(&shared.full[stage]), taken / Shared::kStages % 2);

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
      const bool at_edge = position + 15 > of.context_len - of.num_new || position < all_see_from;
      if (at_edge) {
        // Nothing is known of slots without tokens, and 0 * NaN is NaN.
        for (int key = 0; key < 16; ++key) {
          if (position + key < of.context_len && position + key >= of.first_key) continue;
          for (int d = 8 * lane; d < kHeadDim; d += 8 * 32)
            *reinterpret_cast<uint4*>(shared.stages[stage].values + KeyTile::offset(16 * warp + key, d)) =
                make_uint4(0, 0, 0, 0);
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
      if (lane == 0) arrive(shared_address(&shared.empty[stage]));
    }
    finish_segment(params, segment, sums, shared);
    if (!segment.of_cluster && !segment.whole() && segment.last_part == static_cast<int>(blockIdx.x)) {
      ends_item = true;
      to_merge = segment;
    }
  }
  if (!may_read_all) wait_for_earlier_kernels();
  if (ends_item) merge_parts<kHeadDim, Shared>(params, to_merge);
}

template <class T, int kHeadDim, int kRowGroups>
__global__ void __launch_bounds__(kThreads + 32, 1)
    attention_decode(const __grid_constant__ DecodeParams params, const __grid_constant__ CUtensorMap key_map,
                     const __grid_constant__ CUtensorMap value_map) {
  using Shared = DecodeShared<kHeadDim, kRowGroups>;
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  let_later_kernels_start();
  if (shared_address(shared_bytes) % 1024 != 0) __trap();  // swizzling goes by addresses; no room is spent on aligning
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == kThreads) {
    prefetch_map(key_map);
    prefetch_map(value_map);
    for (int stage = 0; stage < Shared::kStages; ++stage) {
      init_barrier(shared_address(&shared.full[stage]), 1);
      init_barrier(shared_address(&shared.empty[stage]), kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kThreads)
    multiply_tiles<T>(params, shared);
  else
    fetch_tiles(params, key_map, value_map, shared);
}

// Numbers of blocks of a cluster, and how many such clusters the device holds with a block a multiprocessor: where two
// share one, they come last. Smaller ones, for more items, were slower than no clusters at all.
constexpr std::array kClusterBlocks = {16, 12, 10, 8};
using ClustersAtOnce = std::array<int, kClusterBlocks.size()>;

template <class... Params>
ClustersAtOnce clusters_at_once(void (*kernel)(Params...), const LaunchShape& shape) {
  constexpr std::size_t kMoreThanHalf = 128 << 10;  // of a multiprocessor's shared memory
  const std::size_t shared_bytes = std::max(shape.shared_bytes, kMoreThanHalf);
  ClustersAtOnce found{};
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto blocks = static_cast<unsigned>(kClusterBlocks[i]);
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {blocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&found[i], kernel, &config) != cudaSuccess) found[i] = 0;
  }
  cudaGetLastError();  // of a device that has no such clusters
  return found;
}

struct DecodeGrid {
  int cluster, blocks;
};

// The largest clusters of which the device holds one for every item at once, and as many of them as it holds: items of
// many tiles are shared out to all blocks. Sequences of a batch may be of very different lengths: then no clusters.
DecodeGrid decode_grid(const ClustersAtOnce& clusters, int num_sequences, int items, int multiprocessors) {
  const int most = std::clamp(multiprocessors, 1, kMaxDecodeBlocks);
  for (std::size_t i = 0; num_sequences == 1 && i < clusters.size(); ++i)
    if (clusters[i] >= items) {
      const int cluster = kClusterBlocks[i];
      return {cluster, std::min(clusters[i], most / cluster) * cluster};
    }
  return {1, most};
}

}  // namespace

bool attention_decode_takes(const AttentionParams& params) {
  return with_head_dim(params.kv.head_dim, [](auto) {}) && copied_by_boxes(params.kv) && rows_aligned_to(params.q, 2) &&
         rows_aligned_to(params.y, 4);
}

std::size_t attention_decode_scratch_bytes(int head_dim) {
  return kMaxDecodeBlocks * 2 * kMostItemRows * (static_cast<std::size_t>(head_dim) + 2) * sizeof(std::uint32_t);
}

void attention_decode_sm90(const AttentionParams& params, int max_rows, Stream& stream) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device().index);
  const int group = params.num_heads / params.kv.num_kv_heads;
  const int most_rows = params.sequences.max_query_len * group;  // of a sequence; if too many, think of single tokens
  const bool few_rows = (most_rows <= max_rows ? most_rows : group) <= 8;
  DecodeParams decode{.attention = params,
                      .score_scale = params.scale * static_cast<float>(M_LOG2E),
                      .group = group,
                      .max_rows = max_rows,
                      .item_rows = few_rows ? 8 : 16,
                      .parts = static_cast<std::uint32_t*>(params.scratch)};
  // Boxes are of lines of 128 bytes: with 256 each would bring its neighbour, which another box asks for again.
  constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  const CUtensorMap keys = page_map(params.kv, params.kv.keys, kPromotion);
  const CUtensorMap values = page_map(params.kv, params.kv.values, kPromotion);
  const int row_tiles = (std::min(most_rows, max_rows) + decode.item_rows - 1) / decode.item_rows;
  const int items = params.sequences.num_sequences * params.kv.num_kv_heads * row_tiles;
  const auto launch = [&](auto head_dim, auto row_groups, auto type) {
    constexpr int kHeadDim = decltype(head_dim)::value, kRowGroups = decltype(row_groups)::value;
    using T = decltype(type);
    const auto kernel = attention_decode<T, kHeadDim, kRowGroups>;
    LaunchShape shape{.block = dim3(kThreads + 32),
                      .shared_bytes = std::max(sizeof(DecodeShared<kHeadDim, kRowGroups>), kLeastSharedBytesOfDecode)};
    static const ClustersAtOnce clusters = clusters_at_once(kernel, shape);
    const DecodeGrid grid = decode_grid(clusters, params.sequences.num_sequences, items, multiprocessors);
    decode.cluster = grid.cluster;
    shape.cluster = static_cast<unsigned>(grid.cluster);
    shape.grid = dim3(static_cast<unsigned>(grid.blocks));
    launch_sm90("attention", kernel, shape, stream, decode, keys, values);
  };
  const auto launch_type = [&](auto head_dim, auto row_groups) {
    if (params.kv.dtype == DType::bfloat16)
      launch(head_dim, row_groups, __nv_bfloat16());
    else
      launch(head_dim, row_groups, __half());
  };
  with_head_dim(params.kv.head_dim, [&](auto head_dim) {
    if (few_rows)
      launch_type(head_dim, std::integral_constant<int, 1>());
    else
      launch_type(head_dim, std::integral_constant<int, 2>());
  });
}

}  // namespace heddle
