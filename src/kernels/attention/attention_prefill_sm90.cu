// Attention for many new tokens, after FlashAttention-3 (Shah et al., 2024, sections 3.1 and 3.2). A work tile is 128
// pairs of new token and query head that share a KV head; the kernel is persistent and loops over work tiles.
//
// Warps are specialized. One warp schedules work tiles and loads their queries ahead of the consumers. Two load tiles
// of keys and of values by TMA, from the last to the first. One zeroes masked values. Two consumer warpgroups multiply,
// 64 rows each. A warpgroup issues the scores of the next tile and the weighted values of the last one, and computes
// the softmax meanwhile. The two warpgroups alternate (ping-pong scheduling): one's softmax overlaps the other's
// WGMMAs.
//
// A step with few work tiles, as that of a short prompt behind a long conversation, would leave most SMs idle: the keys of
// its work tiles are split, and attention_prefill_merge_sm90.cuh merges the partial results (split-KV).
#include "kernels/attention/attention_prefill_sm90.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/checked.h"
#include "device/even_parts.h"
#include "device/launch_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/attention/attention_decode_sm90.h"
#include "kernels/attention/attention_prefill_merge_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/attention/attention_sm90_tiles.cuh"
#include "kernels/attention/online_softmax_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kGroupRows = 64, kGroups = 2;  // rows per warpgroup, consumer warpgroups
static_assert(kPrefillRows == kGroupRows * kGroups);
constexpr int kPrefillThreads = 128 * (kGroups + 1);
constexpr int kPingPongBarrier = 1, kGroupBarrier = kPingPongBarrier + kGroups;  // one each per warpgroup

// A work tile: rows [first_row, first_row + kPrefillRows) of a sequence's pairs (new token, query head of kv_head),
// head fastest; and of the keys that they see one of `splits` parts.
struct WorkTile {
  int sequence = -1;  // none: the end
  int kv_head = 0, first_row = 0;
  int num_rows = 0;                  // of the sequence
  int first_token = 0;               // of the sequence, among the step's
  int first_position = 0;            // of the sequence's first new token
  int splits = 1, partial = 0;       // whose result is this partial one, if there are several
  int first_key = 0, last_key = -1;  // of the split, that any of the rows sees; by their places in the cache

  __device__ int position_of(int row, int group) const { return first_position + min(row, num_rows - 1) / group; }
};

template <int kHeadDim>
struct PrefillShared {
  static constexpr int kKeys = kHeadDim <= 128 ? 128 : 64;  // per tile: limited by the registers of the scores
  static constexpr int kSlots = kHeadDim <= 128 ? 2 : 1;    // work tiles whose queries are in shared memory
  static constexpr int kStages = 2;                         // of tiles of keys, and of values
  using QueryTile = Tile<kGroupRows, kHeadDim>;
  using KeyTile = Tile<kKeys, kHeadDim>;

  struct Tiles {
    std::byte tiles[kStages][KeyTile::kBytes];
    TmaRing<Mbarrier, kStages> ring;
    Mbarrier landed[kStages];  // a tile with rows that are still to be zeroed
  };
  std::byte queries[kSlots][kGroups][QueryTile::kBytes];
  alignas(1024) Tiles keys;
  alignas(1024) Tiles values;
  WorkTile work_tiles[kSlots];
  TmaRing<Mbarrier, kSlots> work_ring;  // full: the work tile is set; empty: it and its queries have been used
  Mbarrier loaded[kSlots];              // a work tile's queries
};

// Work tile `index`, sequence by sequence, rows with the most keys first, so that the last ones are short. For an
// `index` beyond the last tile, returns none and sets `total` to their number. Whole warps call it.
template <int kKeys>
__device__ WorkTile find_work_tile(const PrefillParams& params, int index, int& total) {
  const PagedSequences& sequences = params.attention.sequences;
  const int heads = params.attention.kv.num_kv_heads, lane = static_cast<int>(threadIdx.x) % 32;
  WorkTile work;
  total = 0;
  for (int s = 0; s < sequences.num_sequences; s += 32) {
    const PrefillSequence mine = prefill_sequence(params, s + lane);
    int up_to = total + mine.works(heads);
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += before - total;
    }
    const unsigned beyond = __ballot_sync(~0u, up_to > index);
    if (beyond != 0) {
      const int holder = __ffs(static_cast<int>(beyond)) - 1, tiles = __shfl_sync(~0u, mine.tiles, holder);
      work.splits = __shfl_sync(~0u, mine.splits, holder);
      const int inside = index - (__shfl_sync(~0u, up_to, holder) - tiles * heads * work.splits);
      work.sequence = s + holder;
      work.num_rows = __shfl_sync(~0u, mine.rows, holder);
      work.kv_head = inside / work.splits % heads;
      work.first_row = (tiles - 1 - inside / work.splits / heads) * kPrefillRows;
      work.first_token = __shfl_sync(~0u, mine.first_token, holder);
      work.first_position = __shfl_sync(~0u, mine.first_position, holder);
      work.last_key = last_place(params, work.position_of(work.first_row + kPrefillRows - 1, params.group));
      if (params.attention.window > 0)
        work.first_key = max(0, work.position_of(work.first_row, params.group) - params.attention.window + 1);
      if (work.splits == 1) return work;
      work.partial = index;
      const int split = inside % work.splits, first = work.first_key / kKeys, count = work.last_key / kKeys + 1 - first;
      const auto first_key_of = [&](int index) {
        return (first + static_cast<int>(begin_of_part<std::uint32_t>(count, index, work.splits))) * kKeys;
      };
      work.last_key = min(work.last_key, first_key_of(split + 1) - 1);
      work.first_key = max(work.first_key, first_key_of(split));
      return work;
    }
    total = __shfl_sync(~0u, up_to, 31);
  }
  return work;
}

// Schedules work tiles and loads their queries, one ahead of the consumers. The block that takes the last index of all,
// one beyond the tiles for each block, resets the counter. One warp. If its own wait times out, it publishes the end,
// so that all warps of the block end after the same tile; their waits for it are LongWaitDeadline.
template <class T, int kHeadDim, class Shared>
__device__ void load_queries(const PrefillParams& params, Shared& shared) {
  using QueryTile = typename Shared::QueryTile;
  const Tensor& q = params.attention.q;
  const int lane = static_cast<int>(threadIdx.x) % 32, blocks = static_cast<int>(gridDim.x);
  const auto take = [&] {
    int taken = 0;
    if (lane == 0) taken = atomicAdd(params.next, 1);
    return __shfl_sync(~0u, taken, 0) + 2 * blocks;
  };
  RingProducer<Shared::kSlots> at;
  for (int n = 0;; ++n, at.advance()) {
    const int slot = at.slot(), block = static_cast<int>(blockIdx.x);
    int index = n == 0 ? block : n == 1 ? 2 * blocks - 1 - block : take();
    int total = 0;
    const WorkTile work = find_work_tile<Shared::kKeys>(params, index, total);
    const bool is_free = __all_sync(~0u, shared.work_ring.wait_until_empty(at, params.waits));
    if (lane == 0) {
      if (is_free)
        shared.work_tiles[slot] = work;
      else
        shared.work_tiles[slot].sequence = -1;  // its other members may still be in use
      shared.work_ring.full(at).arrive();
    }
    if (work.sequence < 0 || !is_free) {
      shared.loaded[slot].arrive();
      if (n < 2) index = take();
      if (lane == 0 && index == max(total, 2 * blocks) + blocks - 1) *params.next = 0;
      return;
    }
    constexpr int kPieces = kHeadDim / 8, kOfThread = kPrefillRows * kPieces / 32;  // of eight elements
    const auto each_piece = [&]<class Element>(int i, Element, auto copy) {
      const int piece = i * 32 + lane, row = piece / kPieces, d = piece % kPieces * 8;
      const int index_of_row = min(work.first_row + row, work.num_rows - 1);  // rows beyond the last hold anything
      const int token = index_of_row / params.group;
      const std::int64_t head = work.kv_head * params.group + index_of_row - token * params.group;
      const auto* from =
          static_cast<const Element*>(q.data) + (work.first_token + token) * q.row_stride + head * kHeadDim + d;
      copy(from, shared.queries[slot][row / kGroupRows] + QueryTile::offset(row % kGroupRows, d));
    };
    if (q.dtype == params.attention.kv.dtype) {
#pragma unroll 4
      for (int i = 0; i < kOfThread; ++i)
        each_piece(i, T{}, [](const T* from, std::byte* to) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
        });
      asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
      with_element(q.dtype, [&]<class Element>() {
#pragma unroll 2
        for (int i = 0; i < kOfThread; ++i)
          each_piece(i, Element{},
                     [](const Element* from, std::byte* to) { *reinterpret_cast<uint4*>(to) = load_eight<T>(from); });
      });
    }
    fence_async_proxy();
    shared.loaded[slot].arrive();
  }
}

// Whether a tile of keys has rows that the whole work tile masks. Only the first and the last one may.
template <int kKeys>
__device__ bool has_masked(const WorkTile& work, int tile) {
  return tile * kKeys < work.first_key || (tile + 1) * kKeys > work.last_key + 1;
}

// What load_tiles() loads. Masked scores are overwritten, whatever the keys are. A masked value is multiplied by 0, and
// 0 * NaN is NaN: so masked values are zeroed before the tile is published.
enum class Operand : std::uint8_t { keys, values };

// Loads the tiles of keys, or those of values, from a work tile's last to its first by TMA. One warp.
template <Operand what, class Shared>
__device__ void load_tiles(const PrefillParams& params, Shared& shared, const CUtensorMap& map,
                           typename Shared::Tiles& tiles) {
  using KeyTile = typename Shared::KeyTile;
  const PagedKv& kv = params.attention.kv;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = min(kv.page_size, 64);  // per TMA box
  const int boxes = Shared::kKeys / rows, boxes_of_page = kv.page_size / rows;
  const int box = lane % boxes, block = lane / boxes;  // one per lane
  const bool has_box = block < KeyTile::kColumnBlocks;
  const int offset = block * KeyTile::kBlockBytes + box * rows * KeyTile::kRowBytes;
  RingProducer<Shared::kStages> at;
  for (RingConsumer<Shared::kSlots> work_at;; work_at.advance()) {
    if (!__all_sync(~0u, shared.work_ring.template wait_until_full<LongWaitDeadline>(work_at, params.waits))) return;
    const WorkTile work = shared.work_tiles[work_at.slot()];
    if (work.sequence < 0) return;
    const std::int32_t* page_table = params.attention.sequences.pages(work.sequence);
    const int first_box = work.first_key / rows, last_box = work.last_key / rows;
    const auto is_wanted = [&](int tile) {
      return has_box && tile * boxes + box >= first_box && tile * boxes + box <= last_box;
    };
    const auto page_of = [&](int tile) {
      return is_wanted(tile) ? page_table[(tile * boxes + box) / boxes_of_page] : 0;
    };

    const int last_tile = work.last_key / Shared::kKeys, first_tile = work.first_key / Shared::kKeys;
    std::int32_t page = page_of(last_tile);
    for (int tile = last_tile; tile >= first_tile; --tile, at.advance()) {
      const std::int32_t next_page = tile > first_tile ? page_of(tile - 1) : 0;
      const bool copy = is_wanted(tile);
      const auto bytes = static_cast<std::uint32_t>(__popc(__ballot_sync(~0u, copy)) * rows * KeyTile::kRowBytes);
      const int row =
          (page * kv.num_kv_heads + work.kv_head) * kv.page_size + (tile * boxes + box) % boxes_of_page * rows;
      const bool to_clear = what == Operand::values && has_masked<Shared::kKeys>(work, tile);
      Mbarrier& landed = to_clear ? tiles.landed[at.slot()] : tiles.ring.full(at);
      tiles.ring.wait_until_empty(at, params.waits);
      if (lane == 0) landed.arrive_expecting(bytes);
      __syncwarp();
      if (copy)
        copy_box(shared_address(tiles.tiles[at.slot()]) + offset, map, block * KeyTile::kBoxColumns, row,
                 landed.address());
      page = next_page;
    }
    shared.work_ring.empty(work_at).arrive();
  }
}

// Zeroes the values that the whole work tile masks, after their TMA load, and then publishes the tile. Done by a warp
// of its own, because both consumer warpgroups read the tile. One warp.
template <class Shared>
__device__ void clear_values(const PrefillParams& params, Shared& shared) {
  using KeyTile = typename Shared::KeyTile;
  constexpr int kKeys = Shared::kKeys, kPieces = KeyTile::kBytes / kKeys / 16;  // per row, 16 bytes each
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto& values = shared.values;
  int loaded_tiles = 0, parities = 0;  // tiles of earlier work tiles; a bit for each stage's `landed`
  for (RingConsumer<Shared::kSlots> work_at;; work_at.advance()) {
    if (!__all_sync(~0u, shared.work_ring.template wait_until_full<LongWaitDeadline>(work_at, params.waits))) return;
    const WorkTile work = shared.work_tiles[work_at.slot()];
    if (work.sequence < 0) return;
    const int last_tile = work.last_key / kKeys, first_tile = work.first_key / kKeys;
#pragma unroll 1
    for (int tile = last_tile; tile >= first_tile; tile = tile > first_tile ? first_tile : first_tile - 1) {
      if (!has_masked<kKeys>(work, tile)) continue;
      const int stage = (loaded_tiles + last_tile - tile) % Shared::kStages;
      values.landed[stage].wait(params.waits, parities >> stage & 1);
      parities ^= 1 << stage;
      const int begin = max(0, work.first_key - tile * kKeys), end = min(kKeys, work.last_key + 1 - tile * kKeys);
      const int masked = kKeys - (end - begin);
      for (int i = lane; i < masked * kPieces; i += 32) {
        const int row = i / kPieces, d = i % kPieces * 8;
        *reinterpret_cast<uint4*>(values.tiles[stage] + KeyTile::offset(row < begin ? row : row - begin + end, d)) =
            make_uint4(0, 0, 0, 0);
      }
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) values.ring.full(stage).arrive();
    }
    loaded_tiles += last_tile - first_tile + 1;
    shared.work_ring.empty(work_at).arrive();
  }
}

// Attention of one warpgroup's rows. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen, and of each row
// columns 2 * (lane % 4) + {0, 1} of every eight.
template <class T, int kHeadDim>
class PrefillRows {
  using Shared = PrefillShared<kHeadDim>;
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  static constexpr int kKeys = Shared::kKeys;
  static constexpr int kParts = kHeadDim > 128 ? kHeadDim / 128 : 1, kPartColumns = kHeadDim / kParts;
  static constexpr bool kPingPong = kHeadDim <= 128;

 public:
  __device__ PrefillRows(const PrefillParams& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {}

  __device__ void run() {
    // Warpgroup 0 issues first.
    if (kPingPong && warpgroup_ == 1) pass_turn();
    RingConsumer<Shared::kSlots> at;
    int sequence = sequence_of_tile(at);  // twice in the source: with one wait, at the loop's head, registers spill
    while (sequence >= 0) {
      begin(at.slot());
      attend();
      store();
      shared_.work_ring.empty(at).arrive();
      at.advance();
      sequence = sequence_of_tile(at);
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // The sequence of the work tile in the slot, after its queries have arrived; -1: the end.
  __device__ int sequence_of_tile(const RingConsumer<Shared::kSlots>& at) const {
    const bool is_loaded = shared_.loaded[at.slot()].template wait<LongWaitDeadline>(params_.waits, at.parity());
    return __shfl_sync(~0u, is_loaded ? shared_.work_tiles[at.slot()].sequence : -1, 0);
  }

  __device__ void begin(int slot) {
    work_ = &shared_.work_tiles[slot];
    queries_ = shared_.queries[slot][warpgroup_];
    const int window = params_.attention.window, first_row = work_->first_row + warpgroup_ * kGroupRows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      last_key_[r] = last_place(params_, work_->position_of(row_of(r), params_.group));
      base_[r] = -INFINITY;
      sum_[r] = 0;
    }
    all_see_to_ = last_place(params_, work_->position_of(first_row, params_.group));
    all_see_from_ = window > 0 ? work_->position_of(first_row + kGroupRows - 1, params_.group) - window + 1 : 0;
  }

  __device__ int row_of(int r) const {
    return work_->first_row + warpgroup_ * kGroupRows + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane() / 4 +
           8 * r;
  }

  __device__ void attend() {
    const int last_tile = work_->last_key / kKeys, first_tile = work_->first_key / kKeys;
    wait_for_keys();
    multiply_keys();
    wgmma_wait<0>();
    pin(scores_);
    release_keys();
    weigh(last_tile);
    round_weights<T>(scores_, weights_);

    for (int tile = last_tile - 1; tile >= first_tile; --tile) {
      wait_for_keys();
      if (kPingPong) wait_for_turn();
      multiply_keys();
      wait_for_values();
      multiply_values(tile + 1 < last_tile);
      if (kPingPong) pass_turn();
      wgmma_wait<1>();
      pin(scores_);
      release_keys();
      weigh(tile);
      form_weights_here(sum_);
      wgmma_wait<0>();
      pin_sums();
      release_values();
      round_weights<T>(scores_, weights_);
      rescale();
    }
    wait_for_values();
    multiply_values(first_tile < last_tile);
    wgmma_wait<0>();
    pin_sums();
    release_values();
  }

  __device__ void wait_for_keys() {
    shared_.keys.ring.wait_until_full(keys_at_, params_.waits);
  }
  __device__ void release_keys() {
    release(shared_.keys.ring.empty(keys_at_));
    keys_at_.advance();
  }
  __device__ void release_values() {
    release(shared_.values.ring.empty(values_at_));
    values_at_.advance();
  }

  __device__ void pin_sums() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) pin(o_[part]);
  }
  __device__ void wait_for_turn() const {
    sync_threads(kPingPongBarrier + warpgroup_, 128 * kGroups);
  }
  __device__ void pass_turn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(kPingPongBarrier + 1 - warpgroup_), "r"(128 * kGroups) : "memory");
  }
  __device__ void release(Mbarrier& empty) const {
    if (lane() == 0) empty.arrive();
  }

  // Issues scores = queries keys^T.
  __device__ void multiply_keys() {
    constexpr int kRowBytes = KeyTile::kRowBytes, kBoxColumns = KeyTile::kBoxColumns;
    const std::uint64_t queries = matrix_descriptor<kRowBytes>(shared_address(queries_), 8 * kRowBytes, 0),
                        keys = matrix_descriptor<kRowBytes>(shared_address(shared_.keys.tiles[keys_at_.slot()]),
                                                            8 * kRowBytes, 0);
    pin(scores_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      const int block = k / kBoxColumns, inside = k % kBoxColumns * 2;
      wgmma_ss<T>(scores_, advanced(queries, block * QueryTile::kBlockBytes + inside),
                  advanced(keys, block * KeyTile::kBlockBytes + inside), k > 0);
    }
    wgmma_commit();
  }

  // Issues o = weights values, added to o if `add`.
  __device__ void multiply_values(bool add) {
    constexpr int kRowBytes = KeyTile::kRowBytes;
    const std::uint64_t values = matrix_descriptor<kRowBytes>(shared_address(shared_.values.tiles[values_at_.slot()]),
                                                              8 * kRowBytes, KeyTile::kBlockBytes);
    pin_sums();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        constexpr int kPartBytes = kPartColumns / KeyTile::kBoxColumns * KeyTile::kBlockBytes;
        wgmma_rs<T>(o_[part], weights_[k], advanced(values, part * kPartBytes + k * 16 * kRowBytes), add || k > 0);
      }
    }
    wgmma_commit();
  }

  __device__ void wait_for_values() {
    shared_.values.ring.wait_until_full(values_at_, params_.waits);
  }

  // Replaces scores by weights, relative to the maximum of their row up to this tile.
  __device__ void weigh(int tile) {
    if (tile * kKeys + kKeys - 1 > all_see_to_ || tile * kKeys < all_see_from_) {
      const int behind =
          params_.attention.window > 0 ? params_.attention.window - 1 : last_key_[1];  // the last visible key
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const int key = tile * kKeys + i / 4 * 8 + lane() % 4 * 2 + i % 2;
        const int last = last_key_[i / 2 % 2];
        if (key > last || key < last - behind) scores_[i] = -INFINITY;
      }
    }
    weigh_scores(scores_, params_.score_scale, base_, sum_, correction_);
  }

  __device__ void rescale() {
    if (!__any_sync(~0u, correction_[0] != 1 || correction_[1] != 1)) return;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) o_[part][i] *= correction_[i / 2 % 2];
  }

  __device__ void store() {
    if (work_->splits > 1) return store_partial();
    if (params_.attention.sums.first != nullptr) return store_sums();
    if constexpr (kHeadDim <= 128)  // larger heads have no registers left for it
      if (params_.stores_rows) return store_rows();
    with_element(params_.attention.y.dtype, [&]<class Y>() { store_as<Y>(); });
  }

  __device__ float sum_of_row(int r) const {
    float sum = sum_[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
  }
  __device__ float inverse_sum(int r) const {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum_of_row(r)));  // the division proper is a call
    return inverse;
  }

  __device__ void store_partial() {
    const PrefillPartial<kHeadDim> partial(params_, work_->partial);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_row(r);
      const int row = row_of(r) - work_->first_row;
      if (row_of(r) >= work_->num_rows) continue;
      if (lane() % 4 == 0) {
        *partial.base(row) = base_[r];
        *partial.sum(row) = sum;
      }
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        const float* pair = &o_[i / (kPartColumns / 8)][i % (kPartColumns / 8) * 4 + 2 * r];
        *reinterpret_cast<float2*>(partial.o(row) + 8 * i + lane() % 4 * 2) = {pair[0], pair[1]};
      }
    }
  }

  __device__ void store_sums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_row(r);
      const int row = row_of(r);
      if (row >= work_->num_rows) continue;
      const SumsOfHead to = sums_of(params_.attention, work_->first_token + row / params_.group,
                                    work_->kv_head * params_.group + row % params_.group);
      if (lane() % 4 == 0) store_weights(to, base_[r], sum);
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        const float* pair = &o_[i / (kPartColumns / 8)][i % (kPartColumns / 8) * 4 + 2 * r];
        *reinterpret_cast<float2*>(to.o + 8 * i + lane() % 4 * 2) = {pair[0], pair[1]};
      }
    }
  }

  // Goes through the queries' shared memory, so that a row is written in whole lines.
  __device__ void store_rows() {
    const float inverse[2] = {inverse_sum(0), inverse_sum(1)};
    const int first = static_cast<int>(threadIdx.x) % 128 / 32 * 16;  // of the warp's rows in the tile
    sync_threads(kGroupBarrier + warpgroup_, 128);                    // nobody reads the queries any more
    const int row = first + lane() / 8 % 2 * 8 + lane() % 8;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; i += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int part = (i + j / 2) / (kPartColumns / 8), column = (i + j / 2) % (kPartColumns / 8);
        const float* pair = &o_[part][column * 4 + 2 * (j % 2)];
        m[j] = pack<T>(pair[0] * inverse[j % 2], pair[1] * inverse[j % 2]);
      }
      store_matrices(shared_address(queries_ + QueryTile::offset(row, 8 * (i + lane() / 16))), m);
    }
    __syncwarp();
    const Tensor& y = params_.attention.y;
    constexpr int kPieces = kHeadDim / 8;
#pragma unroll 2
    for (int i = lane(); i < 16 * kPieces; i += 32) {
      const int piece_row = first + i / kPieces, d = i % kPieces * 8;
      const int index = work_->first_row + warpgroup_ * kGroupRows + piece_row;
      if (index >= work_->num_rows) continue;
      const int token = index / params_.group, head = work_->kv_head * params_.group + index - token * params_.group;
      T* to = static_cast<T*>(y.data) + (work_->first_token + token) * y.row_stride + head * kHeadDim + d;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(queries_ + QueryTile::offset(piece_row, d));
    }
    __syncwarp();
  }

  template <class Y>
  __device__ void store_as() {
    const Tensor& y = params_.attention.y;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = inverse_sum(r);
      const int row = row_of(r);
      if (row >= work_->num_rows) continue;
      const std::int64_t token = work_->first_token + row / params_.group;
      const std::int64_t head = work_->kv_head * params_.group + row % params_.group;
      Y* to = static_cast<Y*>(y.data) + token * y.row_stride + head * kHeadDim + lane() % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        const float* pair = &o_[i / (kPartColumns / 8)][i % (kPartColumns / 8) * 4 + 2 * r];
        store_pair(to + 8 * i, pair[0] * inverse, pair[1] * inverse);
      }
    }
  }

  const PrefillParams& params_;
  Shared& shared_;
  const int warpgroup_;
  const WorkTile* work_ = nullptr;
  std::byte* queries_ = nullptr;  // this warpgroup's rows of the work tile
  RingConsumer<Shared::kStages> keys_at_, values_at_;
  int last_key_[2];                // that rows lane / 4 and lane / 4 + 8 see
  int all_see_from_, all_see_to_;  // keys that each row of the warpgroup sees
  float scores_[kKeys / 2];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kParts][kPartColumns / 2];
  float base_[2], sum_[2], correction_[2];  // weights are 2^(score * score_scale - base)
};

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    attention_prefill(const __grid_constant__ PrefillParams params, const __grid_constant__ CUtensorMap key_map,
                      const __grid_constant__ CUtensorMap value_map) {
  using Shared = PrefillShared<kHeadDim>;
  extern __shared__ std::byte shared_bytes[];
  const std::uint32_t misaligned = shared_address(shared_bytes) % 1024;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    constexpr int kMultiplyingWarps = 4 * kGroups;
    shared.keys.ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    shared.values.ring.init({.producers = 1, .consumers = kMultiplyingWarps});
    for (Mbarrier& landed : shared.values.landed) landed.init(1);
    shared.work_ring.init({.producers = 1, .consumers = 32 * (kMultiplyingWarps + 3)});
    for (Mbarrier& loaded : shared.loaded) loaded.init(32);
    publish_barriers();
    prefetch_map(key_map);
    prefetch_map(value_map);
  }
  __syncthreads();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  if (warp < 4) {
    give_up_registers<56>();
    if (warp == 0) load_tiles<Operand::keys>(params, shared, key_map, shared.keys);
    if (warp == 1) load_tiles<Operand::values>(params, shared, value_map, shared.values);
    if (warp == 2) load_queries<T, kHeadDim>(params, shared);
    if (warp == 3) clear_values(params, shared);
  } else {
    take_registers<224>();
    PrefillRows<T, kHeadDim>(params, shared, warp / 4 - 1).run();
  }
}

}  // namespace

std::size_t attention_prefill_scratch_bytes(int head_dim) {
  if (!with_head_dim(head_dim, [](auto) {})) return 0;  // the kernel does not take it
  return kPrefillCounterBytes +
         sizeof(float) * static_cast<std::size_t>(kMostPrefillPartials) * prefill_partial_floats(head_dim);
}

bool attention_prefill_takes(const AttentionParams& params) {
  if (params.sums.first != nullptr && !SumsOfUnits::take(params)) return false;
  if (params.kv.shard.ranks > 1 && params.window > 0) return false;  // a window may begin anywhere in a part
  return with_head_dim(params.kv.head_dim, [](auto) {}) && copied_by_boxes(params.kv) && takes_groups(params.q, 8) &&
         takes_groups(params.y, 2) && params.scale > 0;
}

void attention_prefill_sm90(const AttentionParams& params, const PrefillStep& step, const Lane& lane) {
  std::byte* const scratch =
      static_cast<std::byte*>(params.scratch) + attention_decode_scratch_bytes(params.kv.head_dim);
  PrefillParams prefill{.attention = params,
                        .score_scale = params.scale * static_cast<float>(M_LOG2E),
                        .group = params.num_heads / params.kv.num_kv_heads,
                        .min_rows = step.min_rows,
                        .first_row = step.first_row,
                        .stores_rows = params.y.dtype == params.kv.dtype && takes_groups(params.y, 8),
                        .next = reinterpret_cast<std::int32_t*>(scratch),
                        .partials = reinterpret_cast<float*>(scratch + kPrefillCounterBytes),
                        .waits = waits_of(lane.stream, "attn. prefill")};
  const CUtensorMap keys = page_map(params.kv, params.kv.keys), values = page_map(params.kv, params.kv.values);
  // The most work tiles that any distribution of tokens over the sequences can have.
  const std::int64_t rows = params.q.rows * prefill.group, sequences = params.sequences.num_sequences;
  const std::int64_t tiles = std::min(
      rows / kPrefillRows + std::min(sequences, rows / (step.min_rows + 1)),
      sequences * ceil_div(std::int64_t{params.sequences.max_query_len} * prefill.group, std::int64_t{kPrefillRows}));
  if (tiles == 0) return;
  const std::int64_t works = tiles * params.kv.num_kv_heads;
  prefill.most_splits = most_prefill_splits(works, lane.num_sms, longest_visible(params));
  // Blocks do not wait for each other, so they need not be resident together: where other kernels hold more SMs than
  // the lane says, late blocks take the remaining tiles.
  const std::int64_t blocks = std::min<std::int64_t>(works * prefill.most_splits, lane.num_sms);
  with_head_dim(params.kv.head_dim, [&](auto head_dim) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)),
                            .block = dim3(kPrefillThreads),
                            .shared_bytes = sizeof(PrefillShared<kHeadDim>) + 1024};
    with_16_bit_element(params.kv.dtype, [&]<class T>() {
      launch_sm90("attention", attention_prefill<T, kHeadDim>, shape, lane, prefill, keys, values);
    });
    if (prefill.most_splits > 1) merge_prefill_partials<kHeadDim>(prefill, lane);
  });
}

}  // namespace heddle
