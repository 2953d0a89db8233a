// Absorbed latent attention (DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1.2): a row of the cache is a latent of 512
// elements and behind it the rotated key of 64. The row is the key of all heads, and its latent is their value. So a tile
// of rows is read from memory once and serves all heads as keys and as values. Rows are split over blocks (split-KV) by the
// plan of the decode kernel (attention_decode_plan_sm90.cu), in which a work item is kLatentRows pairs of new token and
// head. One block per SM processes the splits of the plan.
//
// A producer warp loads tiles by TMA. Eight consumer warps multiply a tile twice. For the scores each takes sixteen rows
// of the tile and half of their elements; the softmax is common to the block, each warp has two rows of queries; for the
// output each takes 64 elements of the latent. Products are computed transposed, with cached rows or elements as rows, so
// that eight queries fill the N dimension of mma.sync.
//
// Blocks that share an item store partial results, and each merges a part of it after its own splits
// (attention_latent_merge_sm90.cuh).
#include "kernels/attention/attention_latent_sm90.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_latent_merge_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/attention/attention_sm90_tiles.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kLatentDim = 512, kCachedDim = 576;
constexpr int kLatentRows = 16;  // pairs of new token and head of a work item
constexpr int kLatentWarps = 8;  // consumers
constexpr int kLatentThreads = 32 * kLatentWarps;
constexpr int kLatentBarrier = 1;  // the consumers' named barrier
constexpr int kLatentStages = 3;
constexpr int kKeyWarps = kDecodeKeys / 16;       // that share the rows of a tile; the others have the other half
constexpr int kScoreSteps = kCachedDim / 16 / 2;  // of 16 elements, that a warp multiplies of a row
constexpr int kWarpElements = kLatentDim / kLatentWarps;  // of the latent, that a warp has of the output
constexpr int kPartialWords = latent_partial_words(kLatentRows, kLatentDim);
static_assert(kPartialWords <= kLatentRows * (kCachedDim + 2));  // attention_decode_scratch_bytes()
static_assert(kLatentWarps == 2 * kKeyWarps && kLatentRows == 2 * kLatentWarps && kWarpElements == 64);

constexpr int kQueryPitch = 2 * kCachedDim + 16;  // bytes; rows that ldmatrix reads at once lie in different banks

using LatentTile = Tile<kDecodeKeys, kCachedDim>;

struct LatentShared {
  static constexpr int kScoreStride = kDecodeKeys + 4;       // padded against bank conflicts
  static constexpr int kWeightStride = kDecodeKeys / 2 + 4;  // words of two weights

  struct OfTile {
    float scores[2][kLatentRows][kScoreStride];  // of both halves of the elements
    std::uint32_t weights[kLatentRows][kWeightStride];
  };

  std::byte stages[kLatentStages][LatentTile::kBytes];
  union {
    OfTile tile;
    std::byte queries[8][kQueryPitch];  // half of them, on their way to registers before a split
  };
  float correction[kLatentRows];                 // of what was summed before this tile
  float largest[kLatentRows], sum[kLatentRows];  // at the end of a split
  TmaRing<Mbarrier, kLatentStages> ring;
};
static_assert(sizeof(LatentShared) <= std::size_t{227} << 10);

// Takes the block's next split. A plan counts the same tiles for all items of a sequence, but early tokens of a chunk see
// fewer: so early and late items alternate, and each run of them has about the same work.
__device__ bool take_split(DecodeSplits& splits, const DecodeParams& params, DecodeSplit& split) {
  if (!splits.take(split)) return false;
  const int items = ceil_div(split.num_new * params.group, kLatentRows), item = split.row_tile;
  split.row_tile = item % 2 == 0 ? item / 2 : items - 1 - item / 2;
  return true;
}

// The first tile of the split that its rows do not see, or its end.
__device__ int end_of_tiles(const DecodeParams& params, const DecodeSplit& split) {
  const int last_row = split.row_tile * kLatentRows + rows_of(params, split) - 1;
  const int last_key = split.context_len - split.num_new + last_row / params.group;
  return min(split.end, last_key / kDecodeKeys + 1);
}

// Loads the tiles of this block's splits by TMA, in order. One warp.
__device__ void load_latents(const DecodeParams& params, const CUtensorMap& map, LatentShared& shared) {
  const PagedKv& kv = params.attention.kv;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = min(kv.page_size, 64);  // per TMA box
  const int boxes = kDecodeKeys / rows;    // per tile and column block: 1, 2 or 4
  const int boxes_of_page = kv.page_size / rows;
  const int copies = LatentTile::kColumnBlocks * boxes;
  const auto box_bytes = static_cast<std::uint32_t>(rows * LatentTile::kRowBytes);

  bool may_read_all = params.attention.older_keys == OlderKeys::in_flight;
  if (may_read_all) wait_for_earlier_kernels();
  RingProducer<kLatentStages> at;
  DecodeSplits splits(params);
  for (DecodeSplit split; take_split(splits, params, split);) {
    const std::int32_t* page_table = params.attention.sequences.pages(split.sequence);
    const int end_box = ceil_div(split.context_len, rows), end = end_of_tiles(params, split);
    // Page words of 32 boxes, one per lane, and of the 32 after them.
    const auto pages_from = [&](int from) {
      return from + lane < end_box ? page_table[(from + lane) / boxes_of_page] : 0;
    };
    int window = split.begin * boxes;
    std::int32_t pages = pages_from(window), next_pages = pages_from(window + 32);
    for (int tile = split.begin; tile < end; ++tile, at.advance()) {
      const int first_box = tile * boxes;
      if (first_box >= window + 32) {
        window += 32;
        pages = next_pages;
        next_pages = pages_from(window + 32);
      }
      if (!may_read_all && (tile + 1) * kDecodeKeys > split.context_len - split.num_new) {
        wait_for_earlier_kernels();  // for the new tokens' rows
        may_read_all = true;
      }
      const int boxes_here = min(boxes, end_box - first_box);
      shared.ring.wait_until_empty(at, params.waits);
      if (lane == 0)
        shared.ring.full(at).arrive_expecting(static_cast<std::uint32_t>(LatentTile::kColumnBlocks * boxes_here) *
                                              box_bytes);
      __syncwarp();
      for (int first = 0; first < copies; first += 32) {
        const int copy = first + lane, box = copy % boxes, block = copy / boxes;
        const std::int32_t page = __shfl_sync(~0u, pages, first_box - window + box);
        if (copy >= copies || box >= boxes_here) continue;
        const std::byte* to =
            shared.stages[at.slot()] + block * LatentTile::kBlockBytes + box * rows * LatentTile::kRowBytes;
        const int row = page * kv.page_size + (first_box + box) % boxes_of_page * rows;
        copy_box(shared_address(to), map, block * LatentTile::kBoxColumns, row, shared.ring.full(at).address());
      }
    }
  }
  if (!may_read_all) wait_for_earlier_kernels();
}

// A warp's fragments of the queries of a split: its half of the elements of all rows. They come in pieces of 16 bytes by way of
// shared memory: fragments straight from memory would be 72 loads of 4 bytes a lane. All consumer threads.
template <class T>
__device__ void load_queries(const DecodeParams& params, const DecodeSplit& split, int half, LatentShared& shared,
                             std::uint32_t (&queries)[2][kScoreSteps][2]) {
  constexpr int kPieces = kCachedDim / 8, kOfThread = ceil_div(kLatentRows * kPieces, kLatentThreads);
  static_assert(kScoreSteps % 2 == 0);
  const Tensor& q = params.attention.q;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, rows = rows_of(params, split);
  uint4 pieces[kOfThread];
  with_element(q.dtype, [&]<class Q>() {  // one switch for all loads, so that they are in flight together
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int piece = thread + i * kLatentThreads, row = piece / kPieces;
      pieces[i] = make_uint4(0, 0, 0, 0);
      if (row < rows)
        pieces[i] =
            load_eight<T>(static_cast<const Q*>(q.data) + element_of(q, params, split, row, piece % kPieces * 8));
    }
  });
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int piece = thread + i * kLatentThreads, row = piece / kPieces - 8 * n;
      if (row >= 0 && row < 8) *reinterpret_cast<uint4*>(shared.queries[row] + piece % kPieces * 16) = pieces[i];
    }
    sync_threads(kLatentBarrier, kLatentThreads);
#pragma unroll
    for (int k = 0; k < kScoreSteps; k += 2) {
      std::uint32_t m[4];  // elements 0-7, 8-15 of a step, then those of the next one
      load_matrices(shared_address(shared.queries[lane % 8] + 2 * (16 * (kScoreSteps * half + k) + lane / 8 * 8)), m);
#pragma unroll
      for (int i = 0; i < 4; ++i) queries[n][k + i / 2][i % 2] = m[i];
    }
    sync_threads(kLatentBarrier, kLatentThreads);  // before the other half, or scores, take its place
  }
}

// The scores of this warp's rows of a tile, of its half of the elements, to shared memory.
template <class T>
__device__ void multiply_keys(std::uint32_t tile, const std::uint32_t (&queries)[2][kScoreSteps][2],
                              LatentShared& shared) {
  constexpr int kAtOnce = 6;
  static_assert(kScoreSteps % kAtOnce == 0 && kAtOnce % 2 == 0);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int half = warp / kKeyWarps, first_key = warp % kKeyWarps * 16;
  float s[2][4] = {}, odd[2][4] = {};  // two sums, of even and odd steps, halve the latency
#pragma unroll
  for (int k = 0; k < kScoreSteps; k += kAtOnce) {
    std::uint32_t m[kAtOnce][4];  // elements 0-7, keys 0-7 and 8-15, then elements 8-15
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      load_matrices(tile + LatentTile::offset(first_key + lane % 16, 16 * (kScoreSteps * half + k + i) + lane / 16 * 8),
                    m[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int n = 0; n < 2; ++n)
        multiply_add<T>(i % 2 == 0 ? s[n] : odd[n], m[i], queries[n][k + i][0], queries[n][k + i][1]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      shared.tile.scores[half][8 * n + lane % 4 * 2 + i % 2][first_key + lane / 4 + i / 2 * 8] = s[n][i] + odd[n][i];
}

// Zeroes the latents from row `first` of a tile on: slots without tokens may hold NaN, and 0 * NaN is NaN.
__device__ void clear_latents(std::byte* tile, int first) {
  constexpr int kPieces = kLatentDim / 8;  // of 16 bytes
  for (int i = static_cast<int>(threadIdx.x); i < (kDecodeKeys - first) * kPieces; i += kLatentThreads)
    *reinterpret_cast<uint4*>(tile + LatentTile::offset(first + i / kPieces, 8 * (i % kPieces))) =
        make_uint4(0, 0, 0, 0);
}

// The softmax of a row of queries, which half a warp has.
struct LatentSoftmax {
  float largest = -INFINITY, sum = 0;  // the sum of this lane's own weights

  // Replaces the scores of a row by weights, four keys a lane. `visible`: keys of the tile that the row sees.
  template <class T>
  __device__ void weigh(int row, int visible, float score_scale, LatentShared& shared) {
    const int at = static_cast<int>(threadIdx.x) % 16 * 4;
    const float4 a = *reinterpret_cast<const float4*>(&shared.tile.scores[0][row][at]);
    const float4 b = *reinterpret_cast<const float4*>(&shared.tile.scores[1][row][at]);
    float s[4] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    float top = largest;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] = at + i < visible ? s[i] * score_scale : -INFINITY;
      top = fmaxf(top, s[i]);
    }
    for (int step = 8; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    const float shift = top == -INFINITY ? 0 : top;  // if the row has seen no key yet
    const float correction = exp2_approx(largest - shift);
    largest = top;
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = exp2_approx(s[i] - shift);
    sum = fmaf(sum, correction, (s[0] + s[1]) + (s[2] + s[3]));
    *reinterpret_cast<uint2*>(&shared.tile.weights[row][at / 2]) = make_uint2(pack<T>(s[0], s[1]), pack<T>(s[2], s[3]));
    if (at == 0) shared.correction[row] = correction;
  }

  // Leaves the row's largest score and sum for all warps.
  __device__ void finish(int row, LatentShared& shared) {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 16 != 0) return;
    shared.largest[row] = largest;
    shared.sum[row] = sum;
  }
};

// A warp's output of a split: in o elements 16 * i + lane / 4 + {0, 8} of its own 64, of rows 8 * n + 2 * (lane % 4) +
// {0, 1}, in mma.sync's layout of o^T.
struct LatentOutput {
  float o[2][kWarpElements / 16][4] = {};

  template <class T>
  __device__ void add(std::uint32_t tile, const LatentShared& shared) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 correction = *reinterpret_cast<const float2*>(&shared.correction[8 * n + lane % 4 * 2]);
#pragma unroll
      for (int i = 0; i < kWarpElements / 16; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) o[n][i][j] *= j % 2 == 0 ? correction.x : correction.y;
    }
#pragma unroll
    for (int k = 0; k < kDecodeKeys / 16; ++k) {
      std::uint32_t weights[2][2];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) weights[n][i] = shared.tile.weights[8 * n + lane / 4][8 * k + 4 * i + lane % 4];
#pragma unroll
      for (int i = 0; i < kWarpElements / 16; ++i) {
        std::uint32_t m[4];  // keys 0-7, elements 0-7 and 8-15, then keys 8-15
        load_matrices_transposed(tile + LatentTile::offset(16 * k + lane / 16 * 8 + lane % 8,
                                                           kWarpElements * warp + 16 * i + lane / 8 % 2 * 8),
                                 m);
#pragma unroll
        for (int n = 0; n < 2; ++n) multiply_add<T>(o[n][i], m, weights[n][0], weights[n][1]);
      }
    }
  }

  // Calls f(row, element, value) for all that this lane has.
  template <class F>
  __device__ void for_each(F f) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < kWarpElements / 16; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          f(8 * n + lane % 4 * 2 + j % 2, kWarpElements * warp + 16 * i + j / 2 * 8 + lane / 4, o[n][i][j]);
  }
};

__device__ std::uint32_t* partial_of(const DecodeParams& params, const DecodeSplit& split) {
  const int block = static_cast<int>(blockIdx.x);
  return params.partials + partial_index(block, split.first_block == block) * kPartialWords;
}

// Stores a split's output to y, or as a partial result. The largest scores and sums are in shared memory.
__device__ void store_output(const DecodeParams& params, const DecodeSplit& split, const LatentOutput& output,
                             const LatentShared& shared) {
  const int rows = rows_of(params, split);
  if (split.whole()) {
    const Tensor& y = params.attention.y;
    with_element(y.dtype, [&]<class Y>() {
      output.for_each([&](int row, int element, float value) {
        if (row < rows)
          static_cast<Y*>(y.data)[element_of(y, params, split, row, element)] = rounded<Y>(value / shared.sum[row]);
      });
    });
    return;
  }
  std::uint32_t* const partial = partial_of(params, split);
  const LatentUnits units = LatentUnits::of(split.last_block - split.first_block + 1);
  const int elements = units.elements(), words = units.words(), of_row = units.of_row(kLatentDim);
  output.for_each([&](int row, int element, float value) {
    const int unit = row * of_row + element / elements;
    if (row < rows) store_relaxed(partial + unit * words + element % elements, hide(value));
  });
  static_assert(kLatentRows * kLatentDim / LatentUnits::kMostElements * LatentUnits::kMostGroups <= kLatentThreads);
  const int unit = static_cast<int>(threadIdx.x), row = unit / of_row;
  if (row >= rows) return;
  store_relaxed(partial + unit * words + elements, hide(shared.largest[row]));
  store_relaxed(partial + unit * words + elements + 1, hide(shared.sum[row]));
}

// Merges this block's part of an item that it shares. All consumer threads.
template <int kGroups>
__device__ void merge_units(const DecodeParams& params, const DecodeSplit& split) {
  constexpr int kElements = LatentUnits{kGroups}.elements(), kOfRow = LatentUnits{kGroups}.of_row(kLatentDim);
  const Tensor& y = params.attention.y;
  const int count = split.last_block - split.first_block + 1, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = (static_cast<int>(blockIdx.x) - split.first_block) * kLatentWarps + warp;
  std::uint32_t* const results = params.partials + partial_index(split.first_block, false) * kPartialWords;
  for (int unit = first; unit < rows_of(params, split) * kOfRow; unit += count * kLatentWarps)
    merge_latent_unit<kGroups, kPartialWords>(results, count, unit, y.data,
                                              element_of(y, params, split, unit / kOfRow, unit % kOfRow * kElements),
                                              y.dtype, params.waits);
}

__device__ void merge_item(const DecodeParams& params, const DecodeSplit& split) {
  switch (LatentUnits::of(split.last_block - split.first_block + 1).groups) {
    case 1:
      return merge_units<1>(params, split);
    case 2:
      return merge_units<2>(params, split);
    default:
      return merge_units<LatentUnits::kMostGroups>(params, split);
  }
}

// Multiplies the tiles that load_latents() loads. All consumer threads.
template <class T>
__device__ void multiply_latents(const DecodeParams& params, LatentShared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = 2 * warp + lane / 16;  // of the softmax

  wait_for_earlier_kernels();  // for q
  RingConsumer<kLatentStages> at;
  bool merges_first = false, merges_last = false;  // the item that the block continues, and the one that it begins
  DecodeSplit first, last;
  DecodeSplits splits(params);
  for (DecodeSplit split; take_split(splits, params, split);) {
    std::uint32_t queries[2][kScoreSteps][2];
    load_queries<T>(params, split, warp / kKeyWarps, shared, queries);
    const int known_row = split.row_tile * kLatentRows + min(row, rows_of(params, split) - 1);
    const int last_key = split.context_len - split.num_new + known_row / params.group;
    LatentSoftmax softmax;
    LatentOutput output;
    const int end = end_of_tiles(params, split);
    for (int tile = split.begin; tile < end; ++tile, at.advance()) {
      std::byte* const stage = shared.stages[at.slot()];
      shared.ring.wait_until_full(at, params.waits);
      multiply_keys<T>(shared_address(stage), queries, shared);
      sync_threads(kLatentBarrier, kLatentThreads);  // the scores are there, and all warps have read the keys
      const int first_key = tile * kDecodeKeys;
      if (first_key + kDecodeKeys > split.context_len) clear_latents(stage, split.context_len - first_key);
      softmax.weigh<T>(row, last_key + 1 - first_key, params.score_scale, shared);
      sync_threads(kLatentBarrier, kLatentThreads);  // the weights are there
      output.add<T>(shared_address(stage), shared);
      fence_async_proxy();  // orders this tile's reads and zeros before the next TMA load into this stage
      __syncwarp();
      if (lane == 0) shared.ring.empty(at).arrive();
    }
    softmax.finish(row, shared);
    sync_threads(kLatentBarrier, kLatentThreads);
    store_output(params, split, output, shared);
    sync_threads(kLatentBarrier, kLatentThreads);  // before the next split's sums
    if (split.whole()) continue;
    const bool continues = split.first_block != static_cast<int>(blockIdx.x);
    (continues ? first : last) = split;
    (continues ? merges_first : merges_last) = true;
  }
  if (merges_first) merge_item(params, first);
  if (merges_last) merge_item(params, last);
}

template <class T>
__global__ void __launch_bounds__(kLatentThreads + 32, 1)
    attention_latent(const __grid_constant__ DecodeParams params, const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  let_later_kernels_start();
  if (shared_address(shared_bytes) % 1024 != 0) __trap();  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<LatentShared*>(shared_bytes);
  if (threadIdx.x == kLatentThreads) {
    prefetch_map(map);
    shared.ring.init({.producers = 1, .consumers = kLatentWarps});
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kLatentThreads)
    multiply_latents<T>(params, shared);
  else
    load_latents(params, map, shared);
}

int blocks_of(const Lane& lane) {
  return std::clamp(lane.num_sms, 1, kMaxDecodeBlocks);
}

DecodeParams decode_params(const AttentionParams& params, const Lane& lane) {
  return {.attention = params,
          .score_scale = params.scale * static_cast<float>(M_LOG2E),
          .group = params.num_heads,
          .max_rows = std::numeric_limits<int>::max(),
          .item_rows = kLatentRows,
          .tiles_of_merge = 0.0025f,
          .cluster = 1,
          .partials = static_cast<std::uint32_t*>(params.scratch),
          .waits = waits_of(lane.stream, "latent attn.")};
}

}  // namespace

bool attention_latent_takes_pages(const PagedKv& kv, int value_dim, int window) {
  return kv.num_kv_heads == 1 && kv.head_dim == kCachedDim && value_dim == kLatentDim && kv.keys == kv.values &&
         window == 0 && copied_by_boxes(kv);
}

bool attention_latent_takes(const AttentionParams& params) {
  return attention_latent_takes_pages(params.kv, params.value_dim, params.window) && takes_groups(params.q, 8) &&
         takes_groups(params.y, 4);
}

std::size_t attention_latent_plan_bytes(std::int64_t max_tokens, int max_sequences, int num_heads) {
  const std::int64_t items = max_tokens * num_heads / kLatentRows + max_sequences;  // of each sequence a part of one
  return static_cast<std::size_t>(kMaxDecodeBlocks + items) * sizeof(DecodeSplit);
}

void plan_attention_latent_sm90(const AttentionPlanParams& params, const Lane& lane) {
  const AttentionParams attention{
      .kv = params.kv, .sequences = params.sequences, .num_heads = params.num_heads, .older_keys = params.older_keys};
  plan_decode(decode_params(attention, lane), blocks_of(lane), params.plan, lane);
}

void attention_latent_sm90(const AttentionParams& params, const Lane& lane) {
  // A box row is a line of 128 bytes. A promotion to 256 would load the neighbour too, which another box loads again.
  const CUtensorMap map = page_map(params.kv, params.kv.keys, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks_of(lane))),
                          .block = dim3(kLatentThreads + 32),
                          .shared_bytes = sizeof(LatentShared),
                          .fit = GridFit::resident};
  const DecodeParams decode = decode_params(params, lane);
  with_16_bit_element(params.kv.dtype,
                      [&]<class T>() { launch_sm90("attention", attention_latent<T>, shape, lane, decode, map); });
}

}  // namespace heddle
