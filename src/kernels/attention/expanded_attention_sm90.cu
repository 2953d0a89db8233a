// Expanded attention by FlashRows (flash_rows_sm90.cuh), for keys of 128 elements of a head and 64 that all heads share, and
// values of 128. A work tile is 128 queries of one head. The kernel is persistent.
//
// One warp loads queries and keys by TMA, one loads values. A tile of keys is three boxes of 64 columns: two of the
// head's part of `keys_values`, one of `shared_keys`; so keys of a head are whole in shared memory only. TMA fills what
// lies beyond the piece with zeros, and the softmax masks it.
//
// Shared memory has 208 KB: 48 KB of queries, and two stages of 48 KB of keys and 32 KB of values. Registers are those of
// heads of 128: 64 scores, 64 outputs and 32 words of weights a thread.
#include "kernels/attention/expanded_attention_sm90.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "kernels/attention/flash_rows_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kOwnKey = kExpandedHeadSm90.nope_dim, kSharedKey = kExpandedHeadSm90.rope_dim;
constexpr int kExpandedKey = kOwnKey + kSharedKey, kExpandedValue = kExpandedHeadSm90.value_dim;
using ExpandedShared = FlashShared<kExpandedKey, kExpandedValue, 2, 1, 2>;
constexpr int kExpandedThreads = 128 * (ExpandedShared::kGroups + 1);

struct ExpandedKernelParams {
  CUtensorMap q, keys_values, shared_keys;
  const float* before;  // [heads, tokens, value_dim], then l and m as ExpandedAttentionParams has them
  float* after;
  void* y;
  std::int64_t y_stride;
  ExpandedSequences sequences;
  int first_key;  // the position of each sequence's first one
  int num_tokens, num_heads, num_works;
  float score_scale;  // scale * log2(e): weights are powers of two
  KernelWaits waits;
};

// Some rows of one head and sequence.
struct ExpandedWork {
  int head;
  int first_row, end_row;  // of q: the work tile's first, and the end of the sequence's
  int first_position;      // of the first row, where the sequence's first key here is at 0; may be negative
  int first_key;           // the row of that key
  int num_keys;            // that the last row sees; may be none
};

// The work tiles of a block, those with the most keys of a sequence first. Blocks take them from the first to the last
// and from the last to the first, alternating, so that each has early and late ones. Heads of one tile follow each other,
// so that blocks share the shared keys.
class ExpandedTurns {
 public:
  __device__ explicit ExpandedTurns(const ExpandedKernelParams& params) : params_(params) {}

  __device__ bool is_over() const { return index() >= params_.num_works; }
  __device__ void advance() { ++turn_; }
  __device__ ExpandedWork work() const {
    constexpr int kRows = ExpandedShared::kRows;
    int tile = params_.num_works / params_.num_heads - 1 - index() / params_.num_heads;
    ExpandedWork work{.head = index() % params_.num_heads};
    for (int i = 0;; ++i) {
      const ExpandedSequence& sequence = params_.sequences.of[i];
      const int tiles = ceil_div(sequence.num_tokens, kRows);
      if (tile < tiles) {
        const int row = tile * kRows, last = min(row + kRows, sequence.num_tokens) - 1;
        work.end_row = work.first_row + sequence.num_tokens;
        work.first_row += row;
        work.first_position = sequence.first_query - params_.first_key + row;
        work.num_keys = max(0, min(sequence.num_keys, sequence.first_query - params_.first_key + last + 1));
        return work;
      }
      tile -= tiles;
      work.first_row += sequence.num_tokens;
      work.first_key += round_up(sequence.num_keys, kExpandedBlockKeys);
    }
  }

 private:
  __device__ int index() const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    return turn_ * blocks + (turn_ % 2 == 0 ? block : blocks - 1 - block);
  }

  const ExpandedKernelParams& params_;
  int turn_ = 0;
};

// The tiles of keys that a work tile sees.
class ExpandedWalk {
 public:
  __device__ explicit ExpandedWalk(int num_keys) : keys_(num_keys) {}

  __device__ bool is_over() const { return key_ >= keys_; }
  __device__ int first_key() const { return key_; }
  __device__ int num_keys() const { return keys_ - key_; }  // from there on; may exceed a tile
  __device__ void advance() { key_ += kFlashKeys; }

 private:
  int key_ = 0;
  const int keys_;
};

// Loads all tiles of keys, and before those of a work tile its queries. One warp.
__device__ void load_expanded_keys(const ExpandedKernelParams& params, ExpandedShared& shared) {
  using QueryTile = ExpandedShared::QueryTile;
  using KeyTile = ExpandedShared::KeyTile;
  constexpr int kBlocks = KeyTile::kColumnBlocks, kOwnBlocks = kOwnKey / KeyTile::kBoxColumns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingProducer<ExpandedShared::kSlots> query_at;
  RingProducer<ExpandedShared::kStages> at;
  for (ExpandedTurns turns(params); !turns.is_over(); turns.advance(), query_at.advance()) {
    const ExpandedWork work = turns.work();
    Mbarrier& arrived = shared.query_ring.full(query_at);
    shared.query_ring.wait_until_empty(query_at, params.waits);
    if (lane == 0) arrived.arrive_expecting(ExpandedShared::kGroups * QueryTile::kBytes);
    __syncwarp();
    if (lane < ExpandedShared::kGroups * kBlocks) {  // a box each
      const int group = lane / kBlocks, block = lane % kBlocks;
      copy_box(shared_address(shared.queries[query_at.slot()][group]) + block * QueryTile::kBlockBytes, params.q,
               work.head * kExpandedKey + block * QueryTile::kBoxColumns, work.first_row + group * kFlashRows,
               arrived.address());
    }
    const int head_column = work.head * (kOwnKey + kExpandedValue);
    for (ExpandedWalk walk(work.num_keys); !walk.is_over(); walk.advance(), at.advance()) {
      const std::uint32_t keys = shared_address(shared.keys[at.slot()]) + lane * KeyTile::kBlockBytes;
      const int row = work.first_key + walk.first_key();
      Mbarrier& full = shared.key_ring.full(at);
      shared.key_ring.wait_until_empty(at, params.waits);
      if (lane == 0) full.arrive_expecting(KeyTile::kBytes);
      __syncwarp();
      if (lane < kOwnBlocks)
        copy_box(keys, params.keys_values, head_column + lane * KeyTile::kBoxColumns, row, full.address());
      else if (lane < kBlocks)
        copy_box(keys, params.shared_keys, (lane - kOwnBlocks) * KeyTile::kBoxColumns, row, full.address());
    }
  }
}

// Loads all tiles of values. One warp.
__device__ void load_expanded_values(const ExpandedKernelParams& params, ExpandedShared& shared) {
  using ValueTile = ExpandedShared::ValueTile;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingProducer<ExpandedShared::kStages> at;
  for (ExpandedTurns turns(params); !turns.is_over(); turns.advance()) {
    const ExpandedWork work = turns.work();
    const int column = work.head * (kOwnKey + kExpandedValue) + kOwnKey + lane * ValueTile::kBoxColumns;
    for (ExpandedWalk walk(work.num_keys); !walk.is_over(); walk.advance(), at.advance()) {
      Mbarrier& full = shared.value_ring.full(at);
      shared.value_ring.wait_until_empty(at, params.waits);
      if (lane == 0) full.arrive_expecting(ValueTile::kBytes);
      __syncwarp();
      if (lane < ValueTile::kColumnBlocks)
        copy_box(shared_address(shared.values[at.slot()]) + lane * ValueTile::kBlockBytes, params.keys_values, column,
                 work.first_key + walk.first_key(), full.address());
    }
  }
}

// Attention of one warpgroup's rows of each work tile.
template <class T>
class ExpandedRows : FlashRows<T, ExpandedShared, ExpandedKernelParams> {
  using Base = FlashRows<T, ExpandedShared, ExpandedKernelParams>;
  using Base::params_;

 public:
  using Base::Base;

  __device__ void run() {
    for (ExpandedTurns turns(params_); !turns.is_over(); turns.advance()) {
      Base::wait_for_queries();
      attend(turns.work());
      store(turns.work());
    }
  }

 private:
  __device__ FlashTile tile_of(const ExpandedWork& work) const { return {work.first_row, work.end_row}; }
  template <class Float>
  __device__ FlashState<Float> state_at(Float* state, const ExpandedWork& work) const {
    const std::int64_t rows = static_cast<std::int64_t>(params_.num_tokens) * params_.num_heads;
    Float* const m = state + rows * kExpandedValue;
    return {.o = state, .l = m + rows, .m = m, .first = static_cast<std::int64_t>(work.head) * params_.num_tokens};
  }

  __device__ void attend(const ExpandedWork& work) {
    Base::clear_state();
    if (params_.before != nullptr) Base::load_state(tile_of(work), state_at(params_.before, work));
    const int first_position = work.first_position + Base::group_row();
    ExpandedWalk walk(work.num_keys);
    Base::attend(walk,
                 [&](const ExpandedWalk& at) { Base::hide_later(at.num_keys(), first_position, at.first_key()); });
  }

  __device__ void store(const ExpandedWork& work) {
    if (params_.after != nullptr) return Base::store_state(tile_of(work), state_at(params_.after, work));
    Base::store_rows(tile_of(work), static_cast<T*>(params_.y) + work.head * kExpandedValue, params_.y_stride);
  }
};

template <class T>
__global__ void __launch_bounds__(kExpandedThreads, 1)
    expanded_attention_kernel(const __grid_constant__ ExpandedKernelParams params) {
  extern __shared__ std::byte shared_bytes[];
  auto& shared = flash_shared<ExpandedShared>(shared_bytes);
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  if (warp < 4) {
    give_up_registers<40>();
    if (warp == 0) load_expanded_keys(params, shared);
    if (warp == 1) load_expanded_values(params, shared);
  } else {
    take_registers<232>();
    ExpandedRows<T>(params, shared, warp / 4 - 1).run();
  }
}

CUtensorMap expanded_map(const Tensor& rows, int box_rows) {
  return tensor_map("expanded_attention", MatrixBoxes{.data = rows.data,
                                                      .rows = static_cast<std::uint64_t>(rows.rows),
                                                      .columns = static_cast<std::uint64_t>(rows.columns),
                                                      .row_stride = static_cast<std::uint64_t>(rows.row_stride),
                                                      .box_rows = static_cast<std::uint32_t>(box_rows),
                                                      .box_columns = ExpandedShared::KeyTile::kBoxColumns,
                                                      .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                                      .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B});
}

}  // namespace

void expanded_attention_sm90(const ExpandedAttentionParams& params, const Lane& lane) {
  std::int64_t tiles = 0;
  for (int i = 0; i < params.sequences.count; ++i)
    tiles += ceil_div(params.sequences[i].num_tokens, ExpandedShared::kRows);
  const int num_works = narrow<int>(tiles * params.num_heads, "tiles of queries");
  const ExpandedKernelParams kernel{.q = expanded_map(params.q, kFlashRows),
                                    .keys_values = expanded_map(params.keys_values, kFlashKeys),
                                    .shared_keys = expanded_map(params.shared_keys, kFlashKeys),
                                    .before = params.before,
                                    .after = params.after,
                                    .y = params.y.data,
                                    .y_stride = params.y.row_stride,
                                    .sequences = params.sequences,
                                    .first_key = params.first_key,
                                    .num_tokens = static_cast<int>(params.q.rows),
                                    .num_heads = params.num_heads,
                                    .num_works = num_works,
                                    .score_scale = params.scale * static_cast<float>(M_LOG2E),
                                    .waits = waits_of(lane.stream, "exp. attention")};
  const LaunchShape launch{.grid = dim3(static_cast<unsigned>(std::min(num_works, lane.num_sms))),
                           .block = dim3(kExpandedThreads),
                           .shared_bytes = flash_shared_bytes<ExpandedShared>()};
  with_16_bit_element(params.q.dtype, [&]<class T>() {
    launch_sm90("expanded_attention", expanded_attention_kernel<T>, launch, lane, kernel);
  });
}

}  // namespace heddle
