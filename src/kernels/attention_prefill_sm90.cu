// Attention for many new tokens, after FlashAttention-3 (Shah et al., 2024, sections 3.1 and 3.2): a block takes 128 pairs of
// new token and query head that share a KV head. One warp has the copy engine fetch tiles of keys and values, from the
// last to the first; two warpgroups multiply, 64 rows each. A warpgroup's tensor cores form the scores of the next tile and
// weigh the values of the last one while its other units turn scores into weights, and the two warpgroups issue
// their products in turns, so that one's softmax falls into the other's products.
#include "kernels/attention_prefill_sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/checked.h"
#include "kernels/attention_sm90_ptx.cuh"
#include "kernels/attention_sm90_rows.cuh"
#include "kernels/attention_sm90_tiles.cuh"
#include "kernels/attention_sm90_wgmma.cuh"
#include "kernels/launch_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels

constexpr int kGroupRows = 64, kGroups = 2;  // rows of a warpgroup, warpgroups that multiply
constexpr int kPrefillRows = kGroupRows * kGroups;
constexpr int kPrefillThreads = 128 * (kGroups + 1);
constexpr int kTurnBarrier = 1, kGroupBarrier = kTurnBarrier + kGroups;  // one each a warpgroup

struct PrefillParams {
  AttentionParams attention;
  float score_scale;  // attention.scale * log2(e): weights are powers of two
  int group;          // query heads of a KV head
  int min_rows;       // sequences of so many rows or fewer are passed over
};

template <int kHeadDim>
struct PrefillShared {
  static constexpr int kKeys = kHeadDim <= 128 ? 128 : 64;  // of a tile: what registers hold of scores
  static constexpr int kStages = 2;
  using QueryTile = Tile<kGroupRows, kHeadDim>;
  using KeyTile = Tile<kKeys, kHeadDim>;

  struct Ring {
    std::byte tiles[kStages][KeyTile::kBytes];
    std::uint64_t full[kStages], empty[kStages];
  };
  std::byte queries[kGroups][QueryTile::kBytes];
  alignas(1024) Ring keys;
  alignas(1024) Ring values;
};

// What a block works on: rows [first_row, first_row + kPrefillRows) of a sequence's pairs (new token, query head of kv_head),
// head fastest.
struct PrefillWork {
  int sequence = -1;  // none
  int kv_head = 0, first_row = 0;
  int num_rows = 0;                  // of the sequence
  int first_position = 0;            // of the sequence's first new token
  int first_key = 0, last_key = -1;  // that any of the rows sees

  __device__ int position_of(int row, int group) const { return first_position + min(row, num_rows - 1) / group; }
};

// Tiles of rows with the most keys come first: what is left at the end is short. By whole warps.
__device__ PrefillWork work_of_block(const PrefillParams& params) {
  const PagedSequences& sequences = params.attention.sequences;
  const int heads = params.attention.kv.num_kv_heads, lane = static_cast<int>(threadIdx.x) % 32;
  PrefillWork work;
  work.kv_head = static_cast<int>(blockIdx.x) % heads;
  int after = static_cast<int>((gridDim.x - 1 - blockIdx.x)) / heads;  // tiles before this one
  for (int s = 0; s < sequences.num_sequences; s += 32) {
    const int sequence = s + lane;
    int rows = 0, tiles = 0;
    if (sequence < sequences.num_sequences) {
      rows = (sequences.query_start[sequence + 1] - sequences.query_start[sequence]) * params.group;
      if (rows > params.min_rows) tiles = (rows + kPrefillRows - 1) / kPrefillRows;
    }
    int up_to = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += before;
    }
    const unsigned beyond = __ballot_sync(~0u, up_to > after);
    if (beyond != 0) {
      const int holder = __ffs(static_cast<int>(beyond)) - 1;
      work.sequence = s + holder;
      work.num_rows = __shfl_sync(~0u, rows, holder);
      work.first_row = (after - __shfl_sync(~0u, up_to - tiles, holder)) * kPrefillRows;
      break;
    }
    after -= __shfl_sync(~0u, up_to, 31);
  }
  if (work.sequence < 0) return work;
  work.first_position = sequences.context_len[work.sequence] - work.num_rows / params.group;
  work.last_key = work.position_of(work.first_row + kPrefillRows - 1, params.group);
  if (params.attention.window > 0)
    work.first_key = max(0, work.position_of(work.first_row, params.group) - params.attention.window + 1);
  return work;
}

// Has the tiles of keys, or those of values, fetched, from the last to the first. One warp.
template <class Shared>
__device__ void fetch_tiles(const PrefillParams& params, const PrefillWork& work, const CUtensorMap& map,
                            typename Shared::Ring& ring) {
  using KeyTile = typename Shared::KeyTile;
  const PagedKv& kv = params.attention.kv;
  const std::int32_t* page_table = params.attention.sequences.pages(work.sequence);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = min(kv.page_size, 64);  // of a box
  const int boxes = Shared::kKeys / rows, boxes_of_page = kv.page_size / rows;
  const int box = lane % boxes, block = lane / boxes;  // a lane copies one
  const int first_box = work.first_key / rows, last_box = work.last_key / rows;
  const bool has_box = block < KeyTile::kColumnBlocks;
  const auto is_wanted = [&](int tile) {
    return has_box && tile * boxes + box >= first_box && tile * boxes + box <= last_box;
  };
  const auto page_of = [&](int tile) { return is_wanted(tile) ? page_table[(tile * boxes + box) / boxes_of_page] : 0; };

  const int last_tile = work.last_key / Shared::kKeys, first_tile = work.first_key / Shared::kKeys;
  std::int32_t page = page_of(last_tile);
  for (int tile = last_tile; tile >= first_tile; --tile) {
    const std::int32_t next_page = tile > first_tile ? page_of(tile - 1) : 0;
    const int fetched = last_tile - tile, stage = fetched % Shared::kStages;
    const bool copy = is_wanted(tile);
    const auto bytes = static_cast<std::uint32_t>(__popc(__ballot_sync(~0u, copy)) * rows * KeyTile::kRowBytes);
    const int row =
        (page * kv.num_kv_heads + work.kv_head) * kv.page_size + (tile * boxes + box) % boxes_of_page * rows;
    const int offset = block * KeyTile::kBlockBytes + box * rows * KeyTile::kRowBytes;
    const std::uint32_t full = shared_address(&ring.full[stage]);
    wait_for_phase(shared_address(&ring.empty[stage]), fetched / Shared::kStages % 2 ^ 1);
    if (lane == 0) arrive_expecting(full, bytes);
    __syncwarp();
    if (copy) copy_box(shared_address(ring.tiles[stage]) + offset, map, block * KeyTile::kBoxColumns, row, full);
    page = next_page;
  }
}

// The attention of one warpgroup's rows. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen, and of each columns
// 2 * (lane % 4) + {0, 1} of every eight.
template <class T, int kHeadDim>
class PrefillRows {
  using Shared = PrefillShared<kHeadDim>;
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  static constexpr int kKeys = Shared::kKeys;
  static constexpr int kParts = kHeadDim > 128 ? kHeadDim / 128 : 1, kPartColumns = kHeadDim / kParts;
  static constexpr bool kTakesTurns = kHeadDim <= 128;

 public:
  __device__ PrefillRows(const PrefillParams& params, const PrefillWork& work, Shared& shared)
      : params_(params),
        work_(work),
        shared_(shared),
        warpgroup_(static_cast<int>(threadIdx.x) / 128 - 1),
        first_row_(work.first_row + warpgroup_ * kGroupRows) {
    const int warp = static_cast<int>(threadIdx.x) % 128 / 32, window = params.attention.window;
    for (int r = 0; r < 2; ++r) {
      row_[r] = first_row_ + 16 * warp + lane() / 4 + 8 * r;
      last_key_[r] = work.position_of(row_[r], params.group);
      first_key_[r] = window > 0 ? last_key_[r] - window + 1 : 0;
    }
    all_see_to_ = work.position_of(first_row_, params.group);
    all_see_from_ = window > 0 ? work.position_of(first_row_ + kGroupRows - 1, params.group) - window + 1 : 0;
  }

  __device__ void run() {
    load_queries();
    const int last_tile = work_.last_key / kKeys, first_tile = work_.first_key / kKeys;
    // The first turn to issue is warpgroup 0's.
    if (kTakesTurns && warpgroup_ == 1) give_turn();

    wait_for_phase(shared_address(&shared_.keys.full[0]), 0);
    multiply_keys(0);
    wgmma_wait<0>();
    pin(scores_);
    release(shared_.keys.empty[0]);
    weigh(last_tile);
    round_weights();

    for (int tile = last_tile - 1; tile >= first_tile; --tile) {
      const int fetched = last_tile - tile, stage = fetched % 2, former = stage ^ 1;
      wait_for_phase(shared_address(&shared_.keys.full[stage]), fetched / 2 % 2);
      if (kTakesTurns) wait_for_turn();
      multiply_keys(stage);
      wait_for_values(tile + 1, former, (fetched - 1) / 2 % 2);
      multiply_values(former, fetched > 1);
      if (kTakesTurns) give_turn();
      wgmma_wait<1>();
      pin(scores_);
      release(shared_.keys.empty[stage]);
      weigh(tile);
      form_weights_here();
      wgmma_wait<0>();
      pin_sums();
      release(shared_.values.empty[former]);
      round_weights();
      rescale();
    }
    const int fetched = last_tile - first_tile, stage = fetched % 2;
    wait_for_values(first_tile, stage, fetched / 2 % 2);
    multiply_values(stage, fetched > 0);
    wgmma_wait<0>();
    pin_sums();
    store();
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void pin_sums() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) pin(o_[part]);
  }
  __device__ void wait_for_turn() const {
    sync_threads(kTurnBarrier + warpgroup_, 128 * kGroups);
  }
  __device__ void give_turn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(kTurnBarrier + 1 - warpgroup_), "r"(128 * kGroups) : "memory");
  }
  __device__ void release(std::uint64_t& empty) const {
    if (lane() == 0) arrive(shared_address(&empty));
  }

  __device__ void load_queries() {
    const Tensor& q = params_.attention.q;
    const std::int64_t token = params_.attention.sequences.query_start[work_.sequence];
    std::byte* tile = shared_.queries[warpgroup_];
    with_element_type(q.dtype, [&](auto type) {
      constexpr int kPieces = kHeadDim / 8, kOfThread = kGroupRows * kPieces / 128;  // of eight elements
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        const int piece = i * 128 + static_cast<int>(threadIdx.x) % 128, row = piece / kPieces, d = piece % kPieces * 8;
        const int index = min(first_row_ + row, work_.num_rows - 1);  // beyond the last: anything that is a number
        const std::int64_t head = work_.kv_head * params_.group + index % params_.group;
        const auto* from =
            static_cast<decltype(type)>(q.data) + (token + index / params_.group) * q.row_stride + head * kHeadDim + d;
        *reinterpret_cast<uint4*>(tile + QueryTile::offset(row, d)) = load_eight<T>(from);
      }
    });
    fence_async_proxy();
    sync_threads(kGroupBarrier + warpgroup_, 128);
  }

  // Begins: scores = queries keys^T.
  __device__ void multiply_keys(int stage) {
    constexpr int kRowBytes = KeyTile::kRowBytes, kBoxColumns = KeyTile::kBoxColumns;
    const std::uint32_t queries = shared_address(shared_.queries[warpgroup_]),
                        keys = shared_address(shared_.keys.tiles[stage]);
    pin(scores_);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      const int block = k / kBoxColumns, inside = k % kBoxColumns * 2;
      multiply_shared<T>(scores_,
                         operand<kRowBytes>(queries + block * QueryTile::kBlockBytes + inside, 8 * kRowBytes, 0),
                         operand<kRowBytes>(keys + block * KeyTile::kBlockBytes + inside, 8 * kRowBytes, 0), k > 0);
    }
    wgmma_commit();
  }

  // Begins: o = weights values, added to what was there.
  __device__ void multiply_values(int stage, bool add) {
    constexpr int kRowBytes = KeyTile::kRowBytes;
    const std::uint32_t values = shared_address(shared_.values.tiles[stage]);
    pin_sums();
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t at =
            values + part * (kPartColumns / KeyTile::kBoxColumns) * KeyTile::kBlockBytes + k * 16 * kRowBytes;
        multiply_registers<T>(o_[part], weights_[k], operand<kRowBytes>(at, 8 * kRowBytes, KeyTile::kBlockBytes),
                              add || k > 0);
      }
    }
    wgmma_commit();
  }

  // Values of keys that nobody here sees are cleared: they may be anything, and 0 * NaN is NaN.
  __device__ void wait_for_values(int tile, int stage, int parity) {
    wait_for_phase(shared_address(&shared_.values.full[stage]), parity);
    const int begin = work_.first_key - tile * kKeys, end = work_.last_key + 1 - tile * kKeys;
    if (begin <= 0 && end >= kKeys) return;
    for (int i = static_cast<int>(threadIdx.x) % 128; i < kKeys * (kHeadDim / 8); i += 128) {
      const int key = i / (kHeadDim / 8), d = i % (kHeadDim / 8) * 8;
      if (key >= begin && key < end) continue;
      *reinterpret_cast<uint4*>(shared_.values.tiles[stage] + KeyTile::offset(key, d)) = make_uint4(0, 0, 0, 0);
    }
    fence_async_proxy();
    sync_threads(kGroupBarrier + warpgroup_, 128);
  }

  // Scores become weights, by what is known of their row up to this tile.
  __device__ void weigh(int tile) {
    if (tile * kKeys + kKeys - 1 > all_see_to_ || tile * kKeys < all_see_from_) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const int key = tile * kKeys + i / 4 * 8 + lane() % 4 * 2 + i % 2;
        if (key > last_key_[i / 2 % 2] || key < first_key_[i / 2 % 2]) scores_[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest_[r];
#pragma unroll
      for (int i = 0; i < kKeys / 2; i += 4) top = fmaxf(top, fmaxf(scores_[i + 2 * r], scores_[i + 2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float shift = top == -INFINITY ? 0 : top * params_.score_scale;  // a row that has seen no key yet
      correction_[r] = exp2_approx(fmaf(largest_[r], params_.score_scale, -shift));
      largest_[r] = top;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kKeys / 2; i += 4) {
        float& first = scores_[i + 2 * r];
        float& second = scores_[i + 2 * r + 1];
        first = exp2_approx(fmaf(first, params_.score_scale, -shift));
        second = exp2_approx(fmaf(second, params_.score_scale, -shift));
        sum += first + second;
      }
      sum_[r] = fmaf(sum_[r], correction_[r], sum);
    }
  }

  // Assemblers move the wait for values ahead of what does not need them, and nothing would be left to do meanwhile. They
  // do not move it ahead of a trap, which needs the weights, or their sum. It is never negative.
  __device__ void form_weights_here() const {
    if (sum_[0] + sum_[1] < 0) __trap();
  }

  __device__ void round_weights() {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) weights_[k][i] = pack<T>(scores_[8 * k + 2 * i], scores_[8 * k + 2 * i + 1]);
  }

  __device__ void rescale() {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) o_[part][i] *= correction_[i / 2 % 2];
  }

  __device__ void store() {
    switch (params_.attention.y.dtype) {
      case DType::bfloat16:
        return store_as<__nv_bfloat162>([](float a, float b) { return __floats2bfloat162_rn(a, b); });
      case DType::float16:
        return store_as<__half2>([](float a, float b) { return __floats2half2_rn(a, b); });
      default:
        return store_as<float2>([](float a, float b) { return make_float2(a, b); });
    }
  }

  template <class Pair, class Round>
  __device__ void store_as(Round round) {
    const Tensor& y = params_.attention.y;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = sum_[r];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (row_[r] >= work_.num_rows) continue;
      const float inverse = 1 / sum;
      const std::int64_t token = params_.attention.sequences.query_start[work_.sequence] + row_[r] / params_.group;
      const std::int64_t head = work_.kv_head * params_.group + row_[r] % params_.group;
      Pair* to = static_cast<Pair*>(y.data) + (token * y.row_stride + head * kHeadDim) / 2 + lane() % 4;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        const float* pair = &o_[i / (kPartColumns / 8)][i % (kPartColumns / 8) * 4 + 2 * r];
        to[4 * i] = round(pair[0] * inverse, pair[1] * inverse);
      }
    }
  }

  const PrefillParams& params_;
  const PrefillWork& work_;
  Shared& shared_;
  int warpgroup_, first_row_;
  int row_[2], first_key_[2], last_key_[2];
  int all_see_from_, all_see_to_;  // keys that each row of the warpgroup sees
  float scores_[kKeys / 2];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kParts][kPartColumns / 2];
  float largest_[2] = {-INFINITY, -INFINITY}, sum_[2] = {0, 0}, correction_[2];
};

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    attention_prefill(const __grid_constant__ PrefillParams params, const __grid_constant__ CUtensorMap key_map,
                      const __grid_constant__ CUtensorMap value_map) {
  using Shared = PrefillShared<kHeadDim>;
  extern __shared__ std::byte shared_bytes[];
  const std::uint32_t misaligned = shared_address(shared_bytes) % 1024;  // swizzling goes by addresses
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shared::kStages; ++stage) {
      init_barrier(shared_address(&shared.keys.full[stage]), 1);
      init_barrier(shared_address(&shared.values.full[stage]), 1);
      init_barrier(shared_address(&shared.keys.empty[stage]), 4 * kGroups);
      init_barrier(shared_address(&shared.values.empty[stage]), 4 * kGroups);
    }
    publish_barriers();
    prefetch_map(key_map);
    prefetch_map(value_map);
  }
  __syncthreads();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const PrefillWork work = work_of_block(params);
  const int warpgroup =
      __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);  // the same in a whole warp, and known to be
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (work.sequence >= 0) {
      if (threadIdx.x / 32 == 0) fetch_tiles<Shared>(params, work, key_map, shared.keys);
      if (threadIdx.x / 32 == 1) fetch_tiles<Shared>(params, work, value_map, shared.values);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (work.sequence >= 0) PrefillRows<T, kHeadDim>(params, work, shared).run();
  }
}

}  // namespace

bool attention_prefill_takes(const AttentionParams& params) {
  return with_head_dim(params.kv.head_dim, [](auto) {}) && copied_by_boxes(params.kv) && rows_aligned_to(params.q, 8) &&
         rows_aligned_to(params.y, 2) && params.scale > 0;
}

void attention_prefill_sm90(const AttentionParams& params, int min_rows, Stream& stream) {
  const PrefillParams prefill{.attention = params,
                              .score_scale = params.scale * static_cast<float>(M_LOG2E),
                              .group = params.num_heads / params.kv.num_kv_heads,
                              .min_rows = min_rows};
  const CUtensorMap keys = page_map(params.kv, params.kv.keys), values = page_map(params.kv, params.kv.values);
  // As many tiles as there can be, however the tokens are shared out among the sequences.
  const std::int64_t rows = params.q.rows * prefill.group, sequences = params.sequences.num_sequences;
  const std::int64_t tiles = std::min(
      rows / kPrefillRows + std::min(sequences, rows / (min_rows + 1)),
      sequences * ceil_div(std::int64_t{params.sequences.max_query_len} * prefill.group, std::int64_t{kPrefillRows}));
  if (tiles == 0) return;
  with_head_dim(params.kv.head_dim, [&](auto head_dim) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(tiles * params.kv.num_kv_heads)),
                            .block = dim3(kPrefillThreads),
                            .shared_bytes = sizeof(PrefillShared<kHeadDim>) + 1024};
    if (params.kv.dtype == DType::bfloat16)
      launch_sm90("attention", attention_prefill<__nv_bfloat16, kHeadDim>, shape, stream, prefill, keys, values);
    else
      launch_sm90("attention", attention_prefill<__half, kHeadDim>, shape, stream, prefill, keys, values);
  });
}

}  // namespace heddle
