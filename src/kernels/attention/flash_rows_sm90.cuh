// What attention kernels with WGMMA have in common, after FlashAttention-3 (Shah et al., 2024, sections 3.1 and 3.2). A
// work tile is 64 queries for each consumer warpgroup. Producer warps fill rings of tiles of keys and of values by TMA.
// Each consumer warpgroup issues the scores of the next tile and the weighted values of the last one, and computes the
// softmax meanwhile. Warpgroups take turns to issue, so one's softmax overlaps the others' WGMMAs.
//
// A kernel says where its operands lie: its producers load them, and its consumers, which derive from FlashRows, say which
// keys a work tile sees, and where its rows and their state (o, l, m) are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/kernel_waits.h"
#include "device/mbarrier_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/attention/online_softmax_sm90.cuh"
#include "kernels/sm90/convert_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kFlashRows = 64;   // of a consumer warpgroup
inline constexpr int kFlashKeys = 128;  // of a tile

// A block's shared memory: its size is that of the members, beginning at a multiple of 1024 (flash_shared).
template <int kKeyDimension, int kValueDimension, int kConsumerGroups, int kQuerySlots, int kTileStages>
struct FlashShared {
  static constexpr int kKeyDim = kKeyDimension, kValueDim = kValueDimension;
  static constexpr int kGroups = kConsumerGroups, kRows = kGroups * kFlashRows;
  static constexpr int kSlots = kQuerySlots;   // work tiles whose queries are in shared memory
  static constexpr int kStages = kTileStages;  // of tiles of keys, and of values
  using QueryTile = Tile<kFlashRows, kKeyDim>;
  using KeyTile = Tile<kFlashKeys, kKeyDim>;
  using ValueTile = Tile<kFlashKeys, kValueDim>;

  std::byte queries[kSlots][kGroups][QueryTile::kBytes];
  alignas(1024) std::byte keys[kStages][KeyTile::kBytes];
  alignas(1024) std::byte values[kStages][ValueTile::kBytes];
  TmaRing<Mbarrier, kSlots> query_ring;
  TmaRing<Mbarrier, kStages> key_ring, value_ring;
};

// Bytes that a launch asks for.
template <class Shared>
constexpr std::size_t flash_shared_bytes() {
  return sizeof(Shared) + 1024;
}

// The block's shared memory, ready for use. All threads call it.
template <class Shared>
__device__ inline Shared& flash_shared(std::byte* bytes) {
  const std::uint32_t misaligned = shared_address(bytes) % 1024;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<Shared*>(bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    constexpr int kMultiplyingWarps = 4 * Shared::kGroups;
    shared.query_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    shared.key_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    shared.value_ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    publish_barriers();
  }
  __syncthreads();
  return shared;
}

// The state of a work tile's rows: element `first` + row of l and m. The o of a whole tile is in the order of WGMMA's
// fragments, which threads read and write 16 bytes beside each other; of a tile that is cut at `count`, row by row. So a state
// is of use only to the kernel that made it, with the same tiles. o is aligned to 16 bytes.
template <class Float>  // may be const
struct FlashState {
  Float *o, *l, *m;
  std::int64_t first;
};

// Some rows [first, first + kRows) of `count`.
struct FlashTile {
  int first, count;
};

// Attention of one warpgroup's rows. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen, and of each row
// columns 2 * (lane % 4) + {0, 1} of every eight. Params, the kernel's own, has `score_scale` (scale * log2(e): weights are
// powers of two) and `waits`.
template <class T, class Shared, class Params>
class FlashRows {
 public:
  __device__ FlashRows(const Params& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {
    if (warpgroup_ == kGroups - 1) pass_turn();  // warpgroup 0 issues first
  }

 protected:
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  using ValueTile = typename Shared::ValueTile;
  static constexpr int kKeyDim = Shared::kKeyDim, kValueDim = Shared::kValueDim, kKeys = kFlashKeys;
  static constexpr int kGroups = Shared::kGroups, kRows = Shared::kRows;
  static constexpr int kTurnBarrier = 1;  // one for each warpgroup

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // The first of the warp's rows in the warpgroup's tile.
  static __device__ int warp_row() { return static_cast<int>(threadIdx.x) % 128 / 32 * 16; }
  // The first of the warpgroup's rows in the work tile.
  __device__ int group_row() const { return warpgroup_ * kFlashRows; }

  __device__ void wait_for_queries() { shared_.query_ring.wait_until_full(queries_at_, params_.waits); }
  // No key was seen yet.
  __device__ void clear_state() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      base_[r] = -INFINITY;
      sum_[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) o_[i] = 0;
  }

  // After clear_state(): what an earlier kernel left.
  __device__ void load_state(const FlashTile& tile, const FlashState<const float>& state) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(tile, r);
      if (row >= tile.count) continue;
      base_[r] = state.m[state.first + row];
      if (lane() % 4 == 0) sum_[r] = state.l[state.first + row];
    }
    with_outputs(tile, state, [](float& mine, float of_state, int) { mine = of_state; });
  }

  // After clear_state() or load_state(): adds what other keys have given the same rows.
  __device__ void merge_state(const FlashTile& tile, const FlashState<const float>& state) {
    float keep[2] = {1, 1}, take[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(tile, r);
      if (row >= tile.count) continue;
      const float theirs = state.m[state.first + row], base = fmaxf(base_[r], theirs);
      if (base == -INFINITY) continue;  // neither has seen a key
      keep[r] = exp2f(base_[r] - base);
      take[r] = exp2f(theirs - base);
      base_[r] = base;
      sum_[r] *= keep[r];
      if (lane() % 4 == 0) sum_[r] += state.l[state.first + row] * take[r];
    }
    with_outputs(tile, state, [&](float& mine, float of_state, int r) { mine = mine * keep[r] + of_state * take[r]; });
  }

  // Adds the keys and values of all tiles of `walk`, which has is_over() and advance(), in the order of the rings.
  // hide(walk) sets scores of the tile that rows do not see to -infinity. Afterwards the queries are released. (The state is
  // there before: loads between WGMMAs that are in flight and their wait make ptxas serialise all WGMMAs of the kernel.)
  template <class Walk, class Hide>
  __device__ void attend(Walk& walk, const Hide& hide) {
    if (walk.is_over()) return release_queries();
    wait_for_keys();
    multiply_keys();
    wgmma_wait<0>();
    pin(scores_);
    release_keys();
    hide(walk);
    weigh();
    round_weights<T>(scores_, weights_);
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
      hide(walk);
      weigh();
      form_weights_here(sum_);
      wgmma_wait<0>();
      pin(o_);
      release_values();
      round_weights<T>(scores_, weights_);
      rescale();
    }
    release_queries();  // so those of the next work tile arrive while this one's results are computed and stored
    wait_for_values();
    multiply_values();
    wgmma_wait<0>();
    pin(o_);
    release_values();
  }

  // Hides all but the tile's first `keys` keys.
  __device__ void hide_behind(int keys) {
    if (keys >= kKeys) return;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i)
      if (i / 4 * 8 + lane() % 4 * 2 + i % 2 >= keys) scores_[i] = -INFINITY;
  }

  // The same, and from each row the keys at later positions. `first_position`: of the warpgroup's first row;
  // `tile_position`: of the tile's first key.
  __device__ void hide_later(int keys, int first_position, int tile_position) {
    if (keys >= kKeys && first_position - tile_position >= kKeys - 1) return;
    const int position = first_position + warp_row() + lane() / 4;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = i / 4 * 8 + lane() % 4 * 2 + i % 2;
      if (key >= keys || tile_position + key > position + i / 2 % 2 * 8) scores_[i] = -INFINITY;
    }
  }

  __device__ void store_state(const FlashTile& tile, const FlashState<float>& state) {
    const float sums[2] = {sum_of_row(0), sum_of_row(1)};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(tile, r);
      if (row >= tile.count || lane() % 4 != 0) continue;
      state.m[state.first + row] = base_[r];
      state.l[state.first + row] = sums[r];
    }
    with_outputs(tile, state, [](float mine, float& of_state, int) { of_state = mine; });
  }

  // Writes o / l; 0 for a row that saw no key. `y`: of row 0; rows are `stride` elements apart, a multiple of 8.
  __device__ void store_rows(const FlashTile& tile, T* y, std::int64_t stride) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_row(r);
      float inverse;
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));  // the division proper is a call
      if (sum == 0) inverse = 0;
      const int row = row_of(tile, r);
      // Four lanes have a row. Of 32 columns each has two of every eight, and after the exchange eight of its own.
#pragma unroll
      for (int i = 0; i < kValueDim / 8; i += 4) {
        std::uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &o_[(i + j) * 4 + 2 * r];
          words[j] = pack<T>(pair[0] * inverse, pair[1] * inverse);
        }
        exchange_in_fours(words);
        if (row < tile.count)
          *reinterpret_cast<uint4*>(y + row * stride + 8 * (i + lane() % 4)) =
              make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }

  const Params& params_;

 private:
  __device__ std::byte* queries() const {
    return shared_.queries[queries_at_.slot()][warpgroup_];
  }
  __device__ int row_of(const FlashTile& tile, int r) const {
    return tile.first + group_row() + warp_row() + lane() / 4 + 8 * r;
  }

  // Calls f with each element of o that this thread has, its place in the state, and its row, 0 or 1.
  template <class Float, class F>
  __device__ void with_outputs(const FlashTile& tile, const FlashState<Float>& state, const F& f) {
    if (tile.first + kRows <= tile.count) {
      using Four = std::conditional_t<std::is_const_v<Float>, const float4, float4>;
      Four* const own =
          reinterpret_cast<Four*>(state.o + (state.first + tile.first + group_row()) * kValueDim) + threadIdx.x % 128;
#pragma unroll
      for (int i = 0; i < kValueDim / 8; ++i) {
        float4 four;
        if constexpr (std::is_const_v<Float>) four = own[i * 128];
        f(o_[4 * i], four.x, 0);
        f(o_[4 * i + 1], four.y, 0);
        f(o_[4 * i + 2], four.z, 1);
        f(o_[4 * i + 3], four.w, 1);
        if constexpr (!std::is_const_v<Float>) own[i * 128] = four;
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_of(tile, r);
      if (row >= tile.count) continue;
      Float* const o = state.o + (state.first + row) * kValueDim + lane() % 4 * 2;
#pragma unroll
      for (int i = 0; i < kValueDim / 8; ++i) {
        f(o_[4 * i + 2 * r], o[8 * i], r);
        f(o_[4 * i + 2 * r + 1], o[8 * i + 1], r);
      }
    }
  }

  // Four neighbouring lanes have four words each; afterwards lane i has word i of each.
  static __device__ void exchange_in_fours(std::uint32_t (&words)[4]) {
    const bool is_odd = lane() % 2 == 1, is_upper = lane() % 4 >= 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const std::uint32_t first = words[i], second = words[i + 1];
      const std::uint32_t other = __shfl_xor_sync(~0u, is_odd ? first : second, 1);
      words[i] = is_odd ? other : first;
      words[i + 1] = is_odd ? second : other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t lower = words[i], upper = words[i + 2];
      const std::uint32_t other = __shfl_xor_sync(~0u, is_upper ? lower : upper, 2);
      words[i] = is_upper ? other : lower;
      words[i + 2] = is_upper ? upper : other;
    }
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
  __device__ void release_queries() {
    release(shared_.query_ring.empty(queries_at_));
    queries_at_.advance();
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
    for (int k = 0; k < kKeyDim; k += 16) {
      const int block = k / kBoxColumns, inside = k % kBoxColumns * 2;
      wgmma_ss<T>(scores_, advanced(left, block * QueryTile::kBlockBytes + inside),
                  advanced(right, block * KeyTile::kBlockBytes + inside), k > 0);
    }
    wgmma_commit();
  }

  // Issues o += weights values.
  __device__ void multiply_values() {
    constexpr int kRowBytes = ValueTile::kRowBytes;
    const std::uint64_t values = matrix_descriptor<kRowBytes>(shared_address(shared_.values[values_at_.slot()]),
                                                              8 * kRowBytes, ValueTile::kBlockBytes);
    pin(o_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) wgmma_rs<T>(o_, weights_[k], advanced(values, k * 16 * kRowBytes), 1);
    wgmma_commit();
  }

  // Replaces scores by weights, relative to a base near the maximum of their row up to this tile.
  __device__ void weigh() {
    weigh_scores(scores_, params_.score_scale, base_, sum_, correction_);
  }

  __device__ void rescale() {
    if (!__any_sync(~0u, correction_[0] != 1 || correction_[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) o_[i] *= correction_[i / 2 % 2];
  }

  __device__ float sum_of_row(int r) const {
    float sum = sum_[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
  }

  Shared& shared_;
  const int warpgroup_;
  RingConsumer<Shared::kSlots> queries_at_;
  RingConsumer<Shared::kStages> keys_at_, values_at_;
  float scores_[kKeys / 2];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kValueDim / 2];
  float base_[2], sum_[2], correction_[2];  // weights are 2^(score * score_scale - base)
};

}  // namespace heddle::sm90
