// Attention for few new tokens and many keys: a stream of keys and values past queries that stay in registers. One block
// a multiprocessor takes an equal share of all tiles of the step (attention_decode_sm90.cuh). In it one warp has the copy
// engine fetch tiles some ahead, and four warps multiply sixteen keys of each with all queries that read them, each
// with a softmax of its own; the four are merged at the end of a segment, and parts of an item by the block that comes
// last, in the blocks' order.
#include "kernels/attention_decode_sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/attention_decode_sm90.cuh"
#include "kernels/attention_sm90_ptx.cuh"
#include "kernels/attention_sm90_rows.cuh"
#include "kernels/attention_sm90_tiles.cuh"
#include "kernels/launch_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels

constexpr int kMaxDecodeBlocks = 256;
constexpr int kWarps = kDecodeKeys / 16;  // that multiply
constexpr int kThreads = 32 * kWarps;     // of those
constexpr int kMultipliers = 1;           // the barrier of those

template <int kHeadDim>
struct DecodeShared {
  using KeyTile = Tile<kDecodeKeys, kHeadDim>;
  static constexpr int kStages = std::min(8, (160 << 10) / (2 * KeyTile::kBytes));
  static constexpr int kMergeStride = kHeadDim + 8;  // so that warps store fragments without bank conflicts

  struct Stage {
    std::byte keys[KeyTile::kBytes];
    std::byte values[KeyTile::kBytes];
  };
  Stage stages[kStages];
  float o[kWarps][kDecodeRows][kMergeStride];  // then the weights of parts: [parts, kDecodeRows]
  float largest[kWarps][kDecodeRows], sum[kWarps][kDecodeRows];
  std::uint64_t full[kStages], empty[kStages];
  int comes_last;
};

// The floats of a part.
template <int kHeadDim>
constexpr int part_floats() {
  return kDecodeRows * (kHeadDim + 2);
}

// Has the tiles of this block's segments fetched, in their order. One warp.
template <int kHeadDim>
__device__ void fetch_tiles(const DecodeParams& params, const CUtensorMap& key_map, const CUtensorMap& value_map,
                            DecodeShared<kHeadDim>& shared) {
  using Shared = DecodeShared<kHeadDim>;
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
}

// What one warp has of a segment: of rows lane / 4 and lane / 4 + 8 the largest score, the sum of this lane's weights, and
// in o, as mma lays them out, the sums of weighted values.
template <int kHeadDim>
struct RowSums {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  float o[kHeadDim / 8][4] = {};

  // Brings the sums up to scores s, which become weights: rows by keys 2 * (lane % 4) + {0, 1} + {0, 8}.
  __device__ void weigh(float (&s)[2][4]) {
    float correction[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(top, largest[r]);
      const float shift = top == -INFINITY ? 0 : top;  // a row that has seen no key yet
      correction[r] = exp2_approx(largest[r] - shift);
      largest[r] = top;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        s[n][2 * r] = exp2_approx(s[n][2 * r] - shift);
        s[n][2 * r + 1] = exp2_approx(s[n][2 * r + 1] - shift);
      }
      sum[r] = fmaf(sum[r], correction[r], (s[0][2 * r] + s[0][2 * r + 1]) + (s[1][2 * r] + s[1][2 * r + 1]));
    }
    if (__all_sync(~0u, correction[0] == 1 && correction[1] == 1)) return;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] *= correction[i / 2];
  }
};

// y of the part's rows, from what is summed up in `value`.
__device__ std::int64_t element_of(const Tensor& rows, const DecodeParams& params, const DecodeSegment& segment,
                                   int row, int d) {
  const int index = segment.row_tile * kDecodeRows + row;
  const int token = params.attention.sequences.query_start[segment.sequence] + index / params.group;
  const int head = segment.kv_head * params.group + index % params.group;
  return token * rows.row_stride + std::int64_t{head} * params.attention.kv.head_dim + d;
}

__device__ int rows_of(const DecodeParams& params, const DecodeSegment& segment) {
  return min(kDecodeRows, segment.of.num_new * params.group - segment.row_tile * kDecodeRows);
}

// y from the item's parts, once all are there. All multiplying threads.
template <int kHeadDim>
__device__ void merge_parts(const DecodeParams& params, const DecodeSegment& segment, DecodeShared<kHeadDim>& shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int rows = rows_of(params, segment), count = segment.last_part - segment.first_part + 1;
  const auto part = [&](int i) {  // the first one begins the item in the last segment of its block
    return params.parts +
           (static_cast<std::int64_t>(segment.first_part + i) * 2 + (i == 0 ? 1 : 0)) * part_floats<kHeadDim>();
  };
  float* weights = &shared.o[0][0][0];
  for (int row = thread / 32; row < rows; row += kWarps) {
    float largest = -INFINITY;
    for (int i = lane; i < count; i += 32) largest = fmaxf(largest, __ldcg(part(i) + kDecodeRows * kHeadDim + row));
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    float sum = 0;
    for (int i = lane; i < count; i += 32) {
      const float* rows_of_part = part(i) + kDecodeRows * kHeadDim;
      const float weight = largest == -INFINITY ? 0 : exp2_approx(__ldcg(rows_of_part + row) - largest);
      weights[i * kDecodeRows + row] = weight;
      sum = fmaf(weight, __ldcg(rows_of_part + kDecodeRows + row), sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) shared.sum[0][row] = sum;
  }
  sync_threads(kMultipliers, kThreads);
  for (int i = thread; i < rows * (kHeadDim / 4); i += kThreads) {
    const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    float4 y{0, 0, 0, 0};
#pragma unroll 8
    for (int p = 0; p < count; ++p) {
      const float4 o = __ldcg(reinterpret_cast<const float4*>(part(p) + row * kHeadDim + d));
      const float weight = weights[p * kDecodeRows + row];
      y.x = fmaf(weight, o.x, y.x), y.y = fmaf(weight, o.y, y.y), y.z = fmaf(weight, o.z, y.z),
      y.w = fmaf(weight, o.w, y.w);
    }
    const float sum = shared.sum[0][row];
    const Tensor& out = params.attention.y;
    store_four(out.data, element_of(out, params, segment, row, d), out.dtype,
               {y.x / sum, y.y / sum, y.z / sum, y.w / sum});
  }
}

// Merges what the warps have of a segment into y, or into a part of y. All multiplying threads.
template <int kHeadDim>
__device__ void finish_segment(const DecodeParams& params, const DecodeSegment& segment, const RowSums<kHeadDim>& sums,
                               DecodeShared<kHeadDim>& shared) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int rows = rows_of(params, segment);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    float sum = sums.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (row >= rows) continue;
    if (lane % 4 == 0) {
      shared.largest[warp][row] = sums.largest[r];
      shared.sum[warp][row] = sum;
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n)
      *reinterpret_cast<float2*>(&shared.o[warp][row][8 * n + lane % 4 * 2]) =
          make_float2(sums.o[n][2 * r], sums.o[n][2 * r + 1]);
  }
  sync_threads(kMultipliers, kThreads);

  float* part = params.parts +
                (std::int64_t{blockIdx.x} * 2 + (segment.first_part == blockIdx.x ? 1 : 0)) * part_floats<kHeadDim>();
  for (int i = thread; i < rows * (kHeadDim / 4); i += kThreads) {
    const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    float largest = -INFINITY, sum = 0;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared.largest[w][row]);
    float4 o{0, 0, 0, 0};
    for (int w = 0; w < kWarps; ++w) {
      const float weight = largest == -INFINITY ? 0 : exp2_approx(shared.largest[w][row] - largest);
      const float4 of_warp = *reinterpret_cast<const float4*>(&shared.o[w][row][d]);
      sum = fmaf(weight, shared.sum[w][row], sum);
      o.x = fmaf(weight, of_warp.x, o.x), o.y = fmaf(weight, of_warp.y, o.y);
      o.z = fmaf(weight, of_warp.z, o.z), o.w = fmaf(weight, of_warp.w, o.w);
    }
    if (segment.whole()) {
      const Tensor& out = params.attention.y;
      store_four(out.data, element_of(out, params, segment, row, d), out.dtype,
                 {o.x / sum, o.y / sum, o.z / sum, o.w / sum});
    } else {
      __stcg(reinterpret_cast<float4*>(part + row * kHeadDim + d), o);
      if (d == 0) {
        __stcg(part + kDecodeRows * kHeadDim + row, largest);
        __stcg(part + kDecodeRows * kHeadDim + kDecodeRows + row, sum);
      }
    }
  }
  if (!segment.whole()) {
    __threadfence();
    sync_threads(kMultipliers, kThreads);
    if (thread == 0) {
      std::int32_t* arrived = params.arrived + segment.first_part;
      const bool last = atomicAdd(arrived, 1) == segment.last_part - segment.first_part;
      if (last) *arrived = 0;
      shared.comes_last = last;
    }
    sync_threads(kMultipliers, kThreads);
    if (shared.comes_last != 0) {
      __threadfence();
      merge_parts(params, segment, shared);
    }
  }
  sync_threads(kMultipliers, kThreads);  // before the next segment's sums are stored
}

// Multiplies what fetch_tiles brings. One of kWarps warps; it takes keys [16 * warp, 16 * warp + 16) of each tile.
template <class T, int kHeadDim>
__device__ void multiply_tiles(const DecodeParams& params, DecodeShared<kHeadDim>& shared) {
  using Shared = DecodeShared<kHeadDim>;
  using KeyTile = typename Shared::KeyTile;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Tensor& q = params.attention.q;

  int taken = 0;
  for (DecodeWalk walk(params); !walk.done();) {
    const DecodeSegment segment = walk.next();
    const DecodeSequence& of = segment.of;
    const int rows = rows_of(params, segment);

    std::uint32_t queries[kHeadDim / 16][4];
    int last_key[2];  // that the rows see
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
      last_key[r] = of.context_len - of.num_new + (segment.row_tile * kDecodeRows + min(row, rows - 1)) / params.group;
      const std::int64_t at = element_of(q, params, segment, min(row, rows - 1), lane % 4 * 2);
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 pair = load_pair(q.data, at + 16 * k + 8 * half, q.dtype);
          queries[k][2 * half + r] = row < rows ? pack<T>(pair.x, pair.y) : 0;
        }
      }
    }
    const int window = params.attention.window;
    const int all_see_from = window > 0 ? of.context_len - window : 0;  // up to the first new token's position

    RowSums<kHeadDim> sums;
    for (int tile = segment.begin; tile < segment.end; ++tile, ++taken) {
      const auto stage = taken % Shared::kStages;
      const std::uint32_t keys = shared_address(shared.stages[stage].keys);
      const std::uint32_t values = shared_address(shared.stages[stage].values);
      wait_for_phase(shared_address(&shared.full[stage]), taken / Shared::kStages % 2);

      float s[2][4] = {};
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        std::uint32_t m[4];  // keys 0-7, then 8-15; of each, elements 0-7 and 8-15
        load_matrices(keys + KeyTile::offset(16 * warp + lane / 16 * 8 + lane % 8, 16 * k + lane / 8 % 2 * 8), m);
        multiply_add<T>(s[0], queries[k], m[0], m[1]);
        multiply_add<T>(s[1], queries[k], m[2], m[3]);
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] *= params.score_scale;

      const int position = tile * kDecodeKeys + 16 * warp;
      if (position + 15 > of.context_len - of.num_new || position < all_see_from) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = position + 8 * n + lane % 4 * 2 + i % 2;
            const int last = last_key[i / 2], first = window > 0 ? last - window + 1 : 0;
            if (key > last || key < first) s[n][i] = -INFINITY;
          }
        }
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

      sums.weigh(s);
      const std::uint32_t weights[4] = {pack<T>(s[0][0], s[0][1]), pack<T>(s[0][2], s[0][3]), pack<T>(s[1][0], s[1][1]),
                                        pack<T>(s[1][2], s[1][3])};
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        std::uint32_t m[4];  // elements 0-7, then 8-15; of each, keys 0-7 and 8-15
        load_matrices_transposed(
            values + KeyTile::offset(16 * warp + lane / 8 % 2 * 8 + lane % 8, 16 * n + lane / 16 * 8), m);
        multiply_add<T>(sums.o[2 * n], weights, m[0], m[1]);
        multiply_add<T>(sums.o[2 * n + 1], weights, m[2], m[3]);
      }
      __syncwarp();
      if (lane == 0) arrive(shared_address(&shared.empty[stage]));
    }
    finish_segment(params, segment, sums, shared);
  }
}

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kThreads + 32, 1)
    attention_decode(const __grid_constant__ DecodeParams params, const __grid_constant__ CUtensorMap key_map,
                     const __grid_constant__ CUtensorMap value_map) {
  extern __shared__ std::byte shared_bytes[];
  const std::uint32_t misaligned = shared_address(shared_bytes) % 1024;  // swizzling goes by addresses
  auto& shared = *reinterpret_cast<DecodeShared<kHeadDim>*>(shared_bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < DecodeShared<kHeadDim>::kStages; ++stage) {
      init_barrier(shared_address(&shared.full[stage]), 1);
      init_barrier(shared_address(&shared.empty[stage]), kWarps);
    }
    publish_barriers();
  }
  if (threadIdx.x == kThreads) {
    prefetch_map(key_map);
    prefetch_map(value_map);
  }
  __syncthreads();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  if (threadIdx.x < kThreads)
    multiply_tiles<T>(params, shared);
  else
    fetch_tiles(params, key_map, value_map, shared);
}

// Calls f with the head_dim as a constant. False: there is no kernel for it.
template <class F>
bool with_decode_head_dim(int head_dim, F f) {
  switch (head_dim) {
    case 64:
      f(std::integral_constant<int, 64>());
      return true;
    case 96:
      f(std::integral_constant<int, 96>());
      return true;
    case 128:
      f(std::integral_constant<int, 128>());
      return true;
    case 256:
      f(std::integral_constant<int, 256>());
      return true;
    default:
      return false;
  }
}

}  // namespace

bool attention_decode_takes(const AttentionParams& params) {
  return with_decode_head_dim(params.kv.head_dim, [](auto) {}) && copied_by_boxes(params.kv) &&
         rows_aligned_to(params.q, 2) && rows_aligned_to(params.y, 4);
}

std::size_t attention_decode_scratch_bytes(int head_dim) {
  return kMaxDecodeBlocks *
         (sizeof(std::int32_t) + 2 * kDecodeRows * (static_cast<std::size_t>(head_dim) + 2) * sizeof(float));
}

void attention_decode_sm90(const AttentionParams& params, int max_rows, Stream& stream) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device().index);
  DecodeParams decode{.attention = params,
                      .score_scale = params.scale * static_cast<float>(M_LOG2E),
                      .group = params.num_heads / params.kv.num_kv_heads,
                      .max_rows = max_rows,
                      .arrived = static_cast<std::int32_t*>(params.scratch)};
  decode.parts = reinterpret_cast<float*>(decode.arrived + kMaxDecodeBlocks);
  const CUtensorMap keys = page_map(params.kv, params.kv.keys), values = page_map(params.kv, params.kv.values);
  with_decode_head_dim(params.kv.head_dim, [&](auto head_dim) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::clamp(multiprocessors, 1, kMaxDecodeBlocks))),
                            .block = dim3(kThreads + 32),
                            .shared_bytes = sizeof(DecodeShared<kHeadDim>) + 1024};
    if (params.kv.dtype == DType::bfloat16)
      launch_sm90("attention", attention_decode<__nv_bfloat16, kHeadDim>, shape, stream, decode, keys, values);
    else
      launch_sm90("attention", attention_decode<__half, kHeadDim>, shape, stream, decode, keys, values);
  });
}

}  // namespace heddle
