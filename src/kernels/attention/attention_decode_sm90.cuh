// The splits that the blocks of the decode kernel process. attention_decode_plan_sm90.cu computes them once for all
// layers with the same window; computing them in every layer would take two to four microseconds each time.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/tensor.h"
#include "device/kernel_waits.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_decode_grid.h"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kDecodeKeys = 64;  // per tile
inline constexpr int kFewestItemRows = 8;

struct DecodeParams {
  AttentionParams attention;
  float score_scale;  // attention.scale * log2(e): weights are powers of two
  int group;          // query heads per KV head
  int max_rows;       // of a sequence that this kernel processes
  int item_rows;      // pairs (new token, query head) that share loaded keys
  // What a partial result costs per row, in tiles; estimated.
  float tiles_of_merge = 0.01f;
  int cluster;  // blocks per cluster; more than 1: one sequence and one cluster per item
  // Partial results [blocks, 2, item_rows * (head_dim + 2)]: o, then the rows' m, then their l, encoded by hide(). Zero
  // between launches, unless a wait has timed out.
  std::uint32_t* partials;
  KernelWaits waits;
};

// How a work item is split over blocks.
enum class SplitKind : std::int32_t {
  none,
  run,      // by equal runs over the tiles of all items; a block may have several splits
  equal,    // evenly; a block has one split
  cluster,  // over the blocks of one cluster; a block may have no tiles
};

// A split: the tiles of one work item that one block processes. A work item is a KV head and item_rows rows of a
// sequence; its keys are cut into tiles of kDecodeKeys. An item of several splits is merged from partial results.
struct alignas(16) DecodeSplit {
  SplitKind kind = SplitKind::none;
  std::int32_t sequence = 0;
  std::int32_t first_token = 0, num_new = 0;  // of the sequence: rows of q
  std::int32_t context_len = 0;
  std::int32_t first_key = 0;  // the first that its first new token sees
  std::int32_t kv_head = 0, row_tile = 0;
  std::int32_t begin = 0, end = 0;               // tiles
  std::int32_t first_block = 0, last_block = 0;  // the blocks that share the item
  std::int32_t next = 0;                         // index in the plan of the block's next split; 0: none
  std::int32_t unused[3] = {};

  __device__ bool whole() const { return first_block == last_block; }
};
inline constexpr int kSplitWords = sizeof(DecodeSplit) / sizeof(std::int32_t);
static_assert(kSplitWords == 16);

// A row of the split's work item.
struct ItemRow {
  int token, head;  // of the step, and of the KV head's query heads

  __device__ ItemRow(const DecodeParams& params, const DecodeSplit& split, int row) {
    const int index = split.row_tile * params.item_rows + row;
    token = split.first_token + index / params.group;
    head = index % params.group;
  }
};

// The index in q or y of element d of a row of the split's work item.
__device__ inline std::int64_t element_of(const Tensor& rows, const DecodeParams& params, const DecodeSplit& split,
                                          int row, int d) {
  const ItemRow at(params, split, row);
  const int head = split.kv_head * params.group + at.head;
  return at.token * rows.row_stride + std::int64_t{head} * params.attention.kv.head_dim + d;
}

__device__ inline int rows_of(const DecodeParams& params, const DecodeSplit& split) {
  return min(params.item_rows, split.num_new * params.group - split.row_tile * params.item_rows);
}

// A plan is an array of splits: the first one of each block, by the block's index, then those that begin an item within
// a block, by the item's index.

// Iterates over the splits of one block, with the same result in every lane; whole warps call it. The next split is
// loaded while the current one is processed.
class DecodeSplits {
 public:
  __device__ explicit DecodeSplits(const DecodeParams& params)
      : plan_(static_cast<const std::uint32_t*>(params.attention.plan)),
        at_(static_cast<int>(blockIdx.x)),
        word_(word_at(at_)) {}

  // False when there are no more.
  __device__ bool take(DecodeSplit& split) {
    if (at_ < 0) return false;
    std::int32_t words[kSplitWords];
#pragma unroll
    for (int i = 0; i < kSplitWords; ++i) words[i] = __shfl_sync(~0u, word_, i);
    memcpy(&split, words, sizeof split);
    at_ = split.next > 0 ? split.next : -1;
    if (at_ >= 0) word_ = word_at(at_);
    return split.kind != SplitKind::none;
  }

 private:
  // One word per lane.
  __device__ std::int32_t word_at(int split) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return static_cast<std::int32_t>(load_relaxed(plan_ + split * kSplitWords + lane % kSplitWords));
  }

  const std::uint32_t* plan_;
  int at_;
  std::int32_t word_;
};

// Enqueues the planning for a grid of this many blocks. Uses only shapes and sequences of params.attention.
void plan_decode(const DecodeParams& params, int num_blocks, void* plan, const Lane& lane);

}  // namespace heddle::sm90
