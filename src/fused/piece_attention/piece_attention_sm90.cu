// Attention over pieces, after FlashAttention-3 (Shah et al., 2024, sections 3.1 and 3.2) and StreamFusion's Algorithm
// 2. A work tile is 64 queries for each consumer warpgroup, of one piece, head and member of the batch. The kernel is
// persistent; a block takes every gridDim.x-th work tile.
//
// One warp loads queries and keys by TMA, one loads values, tile by tile and piece by piece. A tile lies in one piece:
// TMA fills what lies beyond the piece with zeros, and the softmax masks it. Each consumer warpgroup issues the scores
// of the next tile and the weighted values of the last one, and computes the softmax meanwhile. Warpgroups take turns to
// issue, so one's softmax overlaps the others' WGMMAs.
#include "fused/piece_attention/piece_attention_sm90.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "device/head_map_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kGroupRows = 64;  // of a consumer warpgroup
constexpr int kKeys = 128;      // of a tile
// The log2 by which weights may exceed 1 before the row is rescaled (after FlashAttention-4).
constexpr float kSlack = 8;

// Small heads leave registers for a third warpgroup.
constexpr int groups_for(int head_dim) {
  return head_dim <= 64 ? 3 : 2;
}

struct alignas(128) PieceQueries {
  CUtensorMap map;
  void* y;
  PieceStrides y_strides;
  float *o, *l, *m;
  int num_tokens, first_position;
};

struct alignas(128) PieceKeysValues {
  CUtensorMap keys, values;
  int num_tokens, first_position;
};

struct PieceKernelParams {
  const PieceQueries* queries;
  const PieceKeysValues* keys_values;
  const int* first_tiles;  // of each query piece, then their number
  int num_queries, num_keys_values;
  int num_tiles, num_works;  // of one head; of all
  int num_heads, batch;
  int group;          // query heads of a KV head
  float score_scale;  // scale * log2(e): weights are powers of two
  PieceStart start;
  PieceEnd end;
  KernelWaits waits;
};

template <int kHeadDim>
struct PieceShared {
  static constexpr int kGroups = groups_for(kHeadDim);
  static constexpr int kSlots = 2;                        // work tiles whose queries are in shared memory
  static constexpr int kStages = kHeadDim <= 64 ? 3 : 2;  // of tiles of keys, and of values
  using QueryTile = Tile<kGroupRows, kHeadDim>;
  using KeyTile = Tile<kKeys, kHeadDim>;

  std::byte queries[kSlots][kGroups][QueryTile::kBytes];
  alignas(1024) std::byte keys[kStages][KeyTile::kBytes];
  alignas(1024) std::byte values[kStages][KeyTile::kBytes];
  TmaRing<Mbarrier, kSlots> query_ring;
  TmaRing<Mbarrier, kStages> key_ring, value_ring;
};

// Some rows of a query piece, of one head and member of the batch.
struct WorkOfPiece {
  const PieceQueries* piece;
  int first_row, head, batch;
};

// Work tiles of a head follow each other, so that blocks read the same keys. Where queries see different numbers of
// keys, those with most come first.
template <PieceMask mask, int kRows>
__device__ WorkOfPiece work_at(const PieceKernelParams& params, int index) {
  const int heads = params.num_heads * params.batch;
  const int tile = mask == PieceMask::full ? index % params.num_tiles : params.num_tiles - 1 - index / heads;
  const int of = mask == PieceMask::full ? index / params.num_tiles : index % heads;
  int low = 0, high = params.num_queries;  // first_tiles[low] <= tile < first_tiles[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (params.first_tiles[middle] <= tile ? low : high) = middle;
  }
  return {params.queries + low, (tile - params.first_tiles[low]) * kRows, of % params.num_heads, of / params.num_heads};
}

// The tiles of keys that a work tile sees, in the order of the layout.
template <PieceMask mask>
class KeyWalk {
 public:
  // `last_position`: of the work tile's last row.
  __device__ KeyWalk(const PieceKernelParams& params, int last_position)
      : params_(params), last_position_(last_position) {
    take_piece();
  }

  __device__ bool is_over() const { return piece_ == params_.num_keys_values; }
  __device__ const PieceKeysValues& piece() const { return params_.keys_values[piece_]; }
  __device__ int first_key() const { return key_; }         // of the tile in its piece
  __device__ int num_keys() const { return keys_ - key_; }  // of the piece from there on; may exceed a tile
  __device__ void advance() {
    key_ += kKeys;
    if (key_ < keys_) return;
    ++piece_;
    take_piece();
  }

 private:
  __device__ void take_piece() {
    key_ = 0;
    for (; !is_over(); ++piece_) {
      keys_ = piece().num_tokens;
      if (mask == PieceMask::causal) keys_ = min(keys_, last_position_ - piece().first_position + 1);
      if (keys_ > 0) return;
    }
  }

  const PieceKernelParams& params_;
  int piece_ = 0, last_position_, key_ = 0, keys_ = 0;
};

template <int kRows>
__device__ int last_position_of(const WorkOfPiece& work) {
  return work.piece->first_position + min(work.first_row + kRows, work.piece->num_tokens) - 1;
}

enum class PieceOperand : std::uint8_t { keys, values };

// Loads all tiles of keys, and before those of a work tile its queries; or all tiles of values. One warp.
template <PieceOperand what, int kHeadDim, PieceMask mask>
__device__ void load_pieces(const PieceKernelParams& params, PieceShared<kHeadDim>& shared) {
  using Shared = PieceShared<kHeadDim>;
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  constexpr int kGroups = Shared::kGroups, kRows = kGroups * kGroupRows, kBlocks = KeyTile::kColumnBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto& ring = what == PieceOperand::keys ? shared.key_ring : shared.value_ring;
  auto& tiles = what == PieceOperand::keys ? shared.keys : shared.values;
  RingProducer<Shared::kSlots> query_at;
  RingProducer<Shared::kStages> at;
  for (int index = static_cast<int>(blockIdx.x); index < params.num_works; index += static_cast<int>(gridDim.x)) {
    const WorkOfPiece work = work_at<mask, kRows>(params, index);
    if constexpr (what == PieceOperand::keys) {
      Mbarrier& full = shared.query_ring.full(query_at);
      shared.query_ring.wait_until_empty(query_at, params.waits);
      if (lane == 0) full.arrive_expecting(kGroups * QueryTile::kBytes);
      __syncwarp();
      if (lane < kGroups * kBlocks) {  // a box each
        const int group = lane / kBlocks, block = lane % kBlocks;
        acquire_map(work.piece->map);
        copy_box(shared_address(shared.queries[query_at.slot()][group]) + block * QueryTile::kBlockBytes,
                 work.piece->map,
                 HeadBox{block * QueryTile::kBoxColumns, work.first_row + group * kGroupRows, work.head, work.batch},
                 full.address());
      }
      query_at.advance();
    }
    const int head = work.head / params.group;
    for (KeyWalk<mask> walk(params, last_position_of<kRows>(work)); !walk.is_over(); walk.advance(), at.advance()) {
      const CUtensorMap& map = what == PieceOperand::keys ? walk.piece().keys : walk.piece().values;
      ring.wait_until_empty(at, params.waits);
      if (lane == 0) ring.full(at).arrive_expecting(KeyTile::kBytes);
      __syncwarp();
      if (lane < kBlocks) {
        if (walk.first_key() == 0) acquire_map(map);
        copy_box(shared_address(tiles[at.slot()]) + lane * KeyTile::kBlockBytes, map,
                 HeadBox{lane * KeyTile::kBoxColumns, walk.first_key(), head, work.batch}, ring.full(at).address());
      }
    }
  }
}

// Attention of one warpgroup's rows. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen, and of each row
// columns 2 * (lane % 4) + {0, 1} of every eight.
template <class T, int kHeadDim, PieceMask mask>
class PieceRows {
  using Shared = PieceShared<kHeadDim>;
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  static constexpr int kGroups = Shared::kGroups, kRows = kGroups * kGroupRows;
  static constexpr int kTurnBarrier = 1, kGroupBarrier = kTurnBarrier + kGroups;  // one each per warpgroup

 public:
  __device__ PieceRows(const PieceKernelParams& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {}

  __device__ void run() {
    if (warpgroup_ == kGroups - 1) pass_turn();  // warpgroup 0 issues first
    RingConsumer<Shared::kSlots> at;
    for (int index = static_cast<int>(blockIdx.x); index < params_.num_works; index += static_cast<int>(gridDim.x)) {
      shared_.query_ring.wait_until_full(at, params_.waits);
      slot_ = at.slot();
      // Searched twice, because a work item kept through the loop over keys would cost registers that it has not.
      const WorkOfPiece work = work_at<mask, kRows>(params_, index);
      load_state(work);
      attend(work);
      store(work_at<mask, kRows>(params_, index));
      __syncwarp();
      release(shared_.query_ring.empty(at));
      at.advance();
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ std::byte* queries() const { return shared_.queries[slot_][warpgroup_]; }
  // The first of the warp's rows in the warpgroup's tile.
  static __device__ int warp_row() { return static_cast<int>(threadIdx.x) % 128 / 32 * 16; }
  __device__ int row_of(const WorkOfPiece& work, int r) const {
    return work.first_row + warpgroup_ * kGroupRows + warp_row() + lane() / 4 + 8 * r;
  }
  __device__ std::int64_t state_row(const WorkOfPiece& work, int row) const {
    return (static_cast<std::int64_t>(work.batch) * params_.num_heads + work.head) * work.piece->num_tokens + row;
  }

  __device__ void load_state(const WorkOfPiece& work) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      base_[r] = -INFINITY;
      sum_[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o_[i] = 0;
    if (params_.start == PieceStart::fresh) return;
    const PieceQueries& piece = *work.piece;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(work, r);
      if (row >= piece.num_tokens) continue;
      const std::int64_t at = state_row(work, row);
      base_[r] = piece.m[at];
      if (lane() % 4 == 0) sum_[r] = piece.l[at];
      const float* o = piece.o + at * kHeadDim + lane() % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        o_[4 * i + 2 * r] = o[8 * i];
        o_[4 * i + 2 * r + 1] = o[8 * i + 1];
      }
    }
  }

  __device__ void attend(const WorkOfPiece& work) {
    KeyWalk<mask> walk(params_, last_position_of<kRows>(work));
    if (walk.is_over()) return;
    first_position_ = work.piece->first_position + work.first_row + warpgroup_ * kGroupRows;
    wait_for_keys();
    multiply_keys();
    wgmma_wait<0>();
    pin(scores_);
    release_keys();
    weigh(walk);
    round_weights();
    rescale();

    for (walk.advance(); !walk.is_over(); walk.advance()) {
      wait_for_keys();
      wait_for_turn();
      multiply_keys();
      wait_for_values();
      multiply_values();
      pass_turn();
      wgmma_wait<1>();
      pin(scores_);
      release_keys();
      weigh(walk);
      form_weights_here();
      wgmma_wait<0>();
      pin(o_);
      release_values();
      round_weights();
      rescale();
    }
    wait_for_values();
    multiply_values();
    wgmma_wait<0>();
    pin(o_);
    release_values();
  }

  __device__ void wait_for_keys() {
    shared_.key_ring.wait_until_full(keys_at_, params_.waits);
  }
  __device__ void wait_for_values() {
    shared_.value_ring.wait_until_full(values_at_, params_.waits);
  }
  __device__ void release_keys() {
    release(shared_.key_ring.empty(keys_at_));
    keys_at_.advance();
  }
  __device__ void release_values() {
    release(shared_.value_ring.empty(values_at_));
    values_at_.advance();
  }
  __device__ void release(Mbarrier& empty) const {
    if (lane() == 0) empty.arrive();
  }
  // Warpgroup after warpgroup, in a ring.
  __device__ void wait_for_turn() const {
    sync_threads(kTurnBarrier + warpgroup_, 256);
  }
  __device__ void pass_turn() const {
    arrive_at_threads(kTurnBarrier + (warpgroup_ + 1 == kGroups ? 0 : warpgroup_ + 1), 256);
  }

  // Issues scores = queries keys^T.
  __device__ void multiply_keys() {
    constexpr int kRowBytes = KeyTile::kRowBytes, kBoxColumns = KeyTile::kBoxColumns;
    const std::uint64_t left = matrix_descriptor<kRowBytes>(shared_address(queries()), 8 * kRowBytes, 0);
    const std::uint64_t right =
        matrix_descriptor<kRowBytes>(shared_address(shared_.keys[keys_at_.slot()]), 8 * kRowBytes, 0);
    pin(scores_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      const int block = k / kBoxColumns, inside = k % kBoxColumns * 2;
      wgmma_ss<T>(scores_, advanced(left, block * QueryTile::kBlockBytes + inside),
                  advanced(right, block * KeyTile::kBlockBytes + inside), k > 0);
    }
    wgmma_commit();
  }

  // Issues o += weights values.
  __device__ void multiply_values() {
    constexpr int kRowBytes = KeyTile::kRowBytes;
    const std::uint64_t values = matrix_descriptor<kRowBytes>(shared_address(shared_.values[values_at_.slot()]),
                                                              8 * kRowBytes, KeyTile::kBlockBytes);
    pin(o_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) wgmma_rs<T>(o_, weights_[k], advanced(values, k * 16 * kRowBytes), 1);
    wgmma_commit();
  }

  __device__ void hide_scores(const KeyWalk<mask>& walk) {
    const int keys = walk.num_keys();
    if constexpr (mask == PieceMask::full) {
      if (keys >= kKeys) return;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i)
        if (i / 4 * 8 + lane() % 4 * 2 + i % 2 >= keys) scores_[i] = -INFINITY;
    } else {
      // What a row sees of the tile: keys before `seen`.
      const int tile_position = walk.piece().first_position + walk.first_key();
      if (keys >= kKeys && first_position_ - tile_position >= kKeys - 1) return;
      const int position = first_position_ + warp_row() + lane() / 4;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const int key = i / 4 * 8 + lane() % 4 * 2 + i % 2;
        if (key >= keys || tile_position + key > position + i / 2 % 2 * 8) scores_[i] = -INFINITY;
      }
    }
  }

  // Replaces scores by weights, relative to a base near the maximum of their row up to this tile.
  __device__ void weigh(const KeyWalk<mask>& walk) {
    hide_scores(walk);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < kKeys / 2; i += 4) top = fmaxf(top, fmaxf(scores_[i + 2 * r], scores_[i + 2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * params_.score_scale;
      const float before = base_[r];
      if (!(top <= before + kSlack)) base_[r] = fmaxf(top, before);
      const float shift = base_[r] == -INFINITY ? 0 : base_[r];  // if the row has seen no key yet
      correction_[r] = before == base_[r] ? 1 : exp2_approx(before - shift);
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

  // ptxas moves the wait for values ahead of independent instructions, so nothing would overlap it. It does not move
  // the wait ahead of a trap, and this one depends on the weights: their sum is never negative.
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
    if (!__any_sync(~0u, correction_[0] != 1 || correction_[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o_[i] *= correction_[i / 2 % 2];
  }

  __device__ float sum_of_row(int r) const {
    float sum = sum_[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
  }

  __device__ void store(const WorkOfPiece& work) {
    const float sums[2] = {sum_of_row(0), sum_of_row(1)};
    if (params_.end == PieceEnd::carry)
      store_state(work, sums);
    else
      store_rows(work, sums);
  }

  __device__ void store_state(const WorkOfPiece& work, const float (&sums)[2]) const {
    const PieceQueries& piece = *work.piece;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(work, r);
      if (row >= piece.num_tokens) continue;
      const std::int64_t at = state_row(work, row);
      if (lane() % 4 == 0) {
        piece.m[at] = base_[r];
        piece.l[at] = sums[r];
      }
      float* o = piece.o + at * kHeadDim + lane() % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        o[8 * i] = o_[4 * i + 2 * r];
        o[8 * i + 1] = o_[4 * i + 2 * r + 1];
      }
    }
  }

  // Goes through the queries' shared memory, so that a row is written in whole lines.
  __device__ void store_rows(const WorkOfPiece& work, const float (&sums)[2]) {
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse[r]) : "f"(sums[r]));  // the division proper is a call
      if (sums[r] == 0) inverse[r] = 0;                                     // the row saw no key
    }
    sync_threads(kGroupBarrier + warpgroup_, 128);  // nobody reads the queries any more
    const int row = warp_row() + lane() / 8 % 2 * 8 + lane() % 8;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; i += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &o_[(i + j / 2) * 4 + 2 * (j % 2)];
        m[j] = pack<T>(pair[0] * inverse[j % 2], pair[1] * inverse[j % 2]);
      }
      store_matrices(shared_address(queries() + QueryTile::offset(row, 8 * (i + lane() / 16))), m);
    }
    __syncwarp();
    const PieceQueries& piece = *work.piece;
    T* const y = static_cast<T*>(piece.y) + work.batch * piece.y_strides.batch + work.head * piece.y_strides.head;
    constexpr int kPieces = kHeadDim / 8;  // of a row, 16 bytes each
#pragma unroll 2
    for (int i = lane(); i < 16 * kPieces; i += 32) {
      const int piece_row = warp_row() + i / kPieces, d = i % kPieces * 8;
      const int token = work.first_row + warpgroup_ * kGroupRows + piece_row;
      if (token >= piece.num_tokens) continue;
      *reinterpret_cast<uint4*>(y + token * piece.y_strides.token + d) =
          *reinterpret_cast<const uint4*>(queries() + QueryTile::offset(piece_row, d));
    }
    fence_async_proxy();  // TMA writes the next queries there
  }

  const PieceKernelParams& params_;
  Shared& shared_;
  const int warpgroup_;
  int slot_ = 0;            // of the work tile's queries
  int first_position_ = 0;  // of this warpgroup's rows; read by causal attention
  RingConsumer<Shared::kStages> keys_at_, values_at_;
  float scores_[kKeys / 2];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kHeadDim / 2];
  float base_[2], sum_[2], correction_[2];  // weights are 2^(score * score_scale - base)
};

template <class T, int kHeadDim, PieceMask mask>
__global__ void __launch_bounds__(128 * (groups_for(kHeadDim) + 1), 1)
    piece_attention_kernel(const __grid_constant__ PieceKernelParams params) {
  using Shared = PieceShared<kHeadDim>;
  constexpr int kGroups = Shared::kGroups;
  extern __shared__ std::byte shared_bytes[];
  const std::uint32_t misaligned = shared_address(shared_bytes) % 1024;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    constexpr int kMultiplyingWarps = 4 * kGroups;
    shared.query_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    shared.key_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    shared.value_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    publish_barriers();
  }
  __syncthreads();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  if (warp < 4) {
    give_up_registers<kGroups == 3 ? 32 : 40>();
    if (warp == 0) load_pieces<PieceOperand::keys, kHeadDim, mask>(params, shared);
    if (warp == 1) load_pieces<PieceOperand::values, kHeadDim, mask>(params, shared);
  } else {
    take_registers<kGroups == 3 ? 160 : 232>();
    PieceRows<T, kHeadDim, mask>(params, shared, warp / 4 - 1).run();
  }
}

template <class F>
bool with_piece_head_dim(int head_dim, F f) {
  switch (head_dim) {
    case 32:
      f(std::integral_constant<int, 32>());
      return true;
    case 64:
      f(std::integral_constant<int, 64>());
      return true;
    case 128:
      f(std::integral_constant<int, 128>());
      return true;
    default:
      return false;
  }
}

bool are_aligned(const PieceStrides& strides) {
  return strides.batch % 8 == 0 && strides.token % 8 == 0 && strides.head % 8 == 0;
}

struct TableParts {
  std::size_t keys_values, first_tiles, bytes;  // where they begin
};

TableParts parts_of(std::size_t num_queries, std::size_t num_keys_values) {
  const std::size_t keys_values = num_queries * sizeof(PieceQueries);
  const std::size_t first_tiles = keys_values + num_keys_values * sizeof(PieceKeysValues);
  return {keys_values, first_tiles, first_tiles + (num_queries + 1) * sizeof(int)};
}

CUtensorMap map_of(const PieceShape& shape, const void* data, const PieceStrides& strides, int heads, int tokens,
                   int box_tokens) {
  const bool wide = shape.head_dim % 64 == 0;
  // Of a dimension of one, any stride will do that TMA takes.
  const auto stride = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements > 0 ? elements : shape.head_dim);
  };
  return tensor_map("piece_attention",
                    HeadBoxes{.data = data,
                              .batch = static_cast<std::uint64_t>(shape.batch),
                              .heads = static_cast<std::uint64_t>(heads),
                              .tokens = static_cast<std::uint64_t>(tokens),
                              .head_dim = static_cast<std::uint64_t>(shape.head_dim),
                              .batch_stride = stride(strides.batch),
                              .head_stride = stride(strides.head),
                              .token_stride = stride(strides.token),
                              .box_tokens = static_cast<std::uint32_t>(box_tokens),
                              .box_columns = wide ? 64u : 32u,
                              .swizzle = wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                              .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
}

}  // namespace

std::string why_no_piece_kernel(const PieceShape& shape, const std::vector<QueryPiece>& queries,
                                const std::vector<KeyValuePiece>& keys_values) {
  if (!with_piece_head_dim(shape.head_dim, [](auto) {}))
    return fmt::format("head_dim is {}, expected 32, 64 or 128", shape.head_dim);
  if (shape.dtype == DType::float32) return "dtype is float32, expected bfloat16 or float16";
  const auto fits = [](const void* data, const PieceStrides& strides) {
    return is_aligned(data) && are_aligned(strides);
  };
  for (std::size_t i = 0; i < queries.size(); ++i)
    if (queries[i].num_tokens > 0 &&
        (!fits(queries[i].q, queries[i].q_strides) || !fits(queries[i].y, queries[i].y_strides)))
      return fmt::format("query piece {} has rows that are not aligned to 16 bytes", i);
  for (std::size_t i = 0; i < keys_values.size(); ++i)
    if (keys_values[i].num_tokens > 0 &&
        (!fits(keys_values[i].k, keys_values[i].strides) || !is_aligned(keys_values[i].v)))
      return fmt::format("key/value piece {} has rows that are not aligned to 16 bytes", i);
  return {};
}

std::vector<std::byte> piece_table_sm90(const PieceShape& shape, const std::vector<QueryPiece>& queries,
                                        const std::vector<KeyValuePiece>& keys_values) {
  const TableParts parts = parts_of(queries.size(), keys_values.size());
  std::vector<std::byte> table(parts.bytes);
  std::vector<int> first_tiles{0};
  const int rows = groups_for(shape.head_dim) * kGroupRows;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const QueryPiece& of = queries[i];
    PieceQueries entry{};
    if (of.num_tokens > 0) entry.map = map_of(shape, of.q, of.q_strides, shape.num_heads, of.num_tokens, kGroupRows);
    entry.y = of.y;
    entry.y_strides = of.y_strides;
    entry.o = of.o;
    entry.l = of.l;
    entry.m = of.m;
    entry.num_tokens = of.num_tokens;
    entry.first_position = of.first_position;
    std::memcpy(table.data() + i * sizeof entry, &entry, sizeof entry);
    first_tiles.push_back(first_tiles.back() + ceil_div(of.num_tokens, rows));
  }
  for (std::size_t i = 0; i < keys_values.size(); ++i) {
    const KeyValuePiece& of = keys_values[i];
    PieceKeysValues entry{};
    if (of.num_tokens > 0) {
      entry.keys = map_of(shape, of.k, of.strides, shape.num_kv_heads, of.num_tokens, kKeys);
      entry.values = map_of(shape, of.v, of.strides, shape.num_kv_heads, of.num_tokens, kKeys);
    }
    entry.num_tokens = of.num_tokens;
    entry.first_position = of.first_position;
    std::memcpy(table.data() + parts.keys_values + i * sizeof entry, &entry, sizeof entry);
  }
  std::memcpy(table.data() + parts.first_tiles, first_tiles.data(), first_tiles.size() * sizeof(int));
  return table;
}

void piece_attention_sm90(const PieceAttentionParams& params, const Lane& lane) {
  const PieceLayout& layout = *params.layout;
  const PieceShape& shape = layout.shape();
  const std::byte* const table = layout.table();
  const TableParts parts = parts_of(layout.queries().size(), layout.keys_values().size());
  const int rows = groups_for(shape.head_dim) * kGroupRows;
  std::int64_t num_tiles = 0;
  for (const QueryPiece& piece : layout.queries()) num_tiles += ceil_div(piece.num_tokens, rows);
  const int num_works = narrow<int>(num_tiles * shape.batch * shape.num_heads, "tiles of queries");
  if (num_works == 0) return;
  const PieceKernelParams kernel{.queries = reinterpret_cast<const PieceQueries*>(table),
                                 .keys_values = reinterpret_cast<const PieceKeysValues*>(table + parts.keys_values),
                                 .first_tiles = reinterpret_cast<const int*>(table + parts.first_tiles),
                                 .num_queries = static_cast<int>(layout.queries().size()),
                                 .num_keys_values = static_cast<int>(layout.keys_values().size()),
                                 .num_tiles = static_cast<int>(num_tiles),
                                 .num_works = num_works,
                                 .num_heads = shape.num_heads,
                                 .batch = shape.batch,
                                 .group = shape.num_heads / shape.num_kv_heads,
                                 .score_scale = params.scale * static_cast<float>(M_LOG2E),
                                 .start = params.start,
                                 .end = params.end,
                                 .waits = waits_of(lane.stream, "piece attention")};
  with_piece_head_dim(shape.head_dim, [&](auto head_dim) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    const LaunchShape launch{.grid = dim3(static_cast<unsigned>(std::min(num_works, lane.num_sms))),
                             .block = dim3(128 * (groups_for(kHeadDim) + 1)),
                             .shared_bytes = sizeof(PieceShared<kHeadDim>) + 1024};
    with_16_bit_element(shape.dtype, [&]<class T>() {
      if (params.mask == PieceMask::full)
        launch_sm90("piece_attention", piece_attention_kernel<T, kHeadDim, PieceMask::full>, launch, lane, kernel);
      else
        launch_sm90("piece_attention", piece_attention_kernel<T, kHeadDim, PieceMask::causal>, launch, lane, kernel);
    });
  });
}

}  // namespace heddle
