// What the blocks of the decode kernel take of a step: segments, which attention_decode_plan_sm90.cu lays out once for
// all layers of a window, as all blocks of all layers would otherwise find out the same, two to four microseconds each
// time.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/kernel_waits.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_decode_grid.h"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kDecodeKeys = 64;  // of a tile
inline constexpr int kFewestItemRows = 8;

struct DecodeParams {
  AttentionParams attention;
  float score_scale;  // attention.scale * log2(e): weights are powers of two
  int group;          // query heads of a KV head
  int max_rows;       // of a sequence that is attended for
  int item_rows;      // pairs (new token, query head) that share what is loaded
  int cluster;        // blocks of a cluster; where it is more than 1, there is one sequence and a cluster for each item
  std::uint32_t*
      parts;  // [blocks, 2, item_rows * (head_dim + 2)]: o, then the rows' m, then their l, hidden (hide()); zero
              // between launches that did not give up
  KernelWaits waits;
};

// How a block comes to what it takes of an item.
enum class DecodeShare : std::int32_t {
  nothing,
  run,      // as its turn of all tiles of all items; it may have others
  split,    // it has this split of one item, and nothing else
  cluster,  // a cluster has the item to itself; this block may have no tiles
};

// What a block takes of one item: a pair of KV head and item_rows rows of a sequence, cut into tiles of kDecodeKeys
// keys. An item that several blocks share is merged from its parts.
struct alignas(16) DecodeSegment {
  DecodeShare share = DecodeShare::nothing;
  std::int32_t sequence = 0;
  std::int32_t first_token = 0, num_new = 0;  // of the sequence: rows of q
  std::int32_t context_len = 0;
  std::int32_t first_key = 0;  // that its first new token sees
  std::int32_t kv_head = 0, row_tile = 0;
  std::int32_t begin = 0, end = 0;             // tiles
  std::int32_t first_part = 0, last_part = 0;  // the blocks that share the item
  std::int32_t next = 0;                       // place in the plan of the block's next one; 0: there is none
  std::int32_t unused[3] = {};

  __device__ bool whole() const { return first_part == last_part; }
};
inline constexpr int kSegmentNumbers = sizeof(DecodeSegment) / sizeof(std::int32_t);
static_assert(kSegmentNumbers == 16);

// A plan is an array of segments: the first one of each block, by its index, and behind those of all blocks what begins
// an item within a block, by the item's index.

// The segments of this block in turn; the same in every lane. Called by whole warps. The next one is on its way while
// one is worked on.
class DecodeSegments {
 public:
  __device__ explicit DecodeSegments(const DecodeParams& params)
      : plan_(static_cast<const std::uint32_t*>(params.attention.plan)),
        at_(static_cast<int>(blockIdx.x)),
        number_(number_at(at_)) {}

  // False when there are no more.
  __device__ bool take(DecodeSegment& segment) {
    if (at_ < 0) return false;
    std::int32_t numbers[kSegmentNumbers];
#pragma unroll
    for (int i = 0; i < kSegmentNumbers; ++i) numbers[i] = __shfl_sync(~0u, number_, i);
    memcpy(&segment, numbers, sizeof segment);
    at_ = segment.next > 0 ? segment.next : -1;
    if (at_ >= 0) number_ = number_at(at_);
    return segment.share != DecodeShare::nothing;
  }

 private:
  // Of this lane.
  __device__ std::int32_t number_at(int segment) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return static_cast<std::int32_t>(load_relaxed(plan_ + segment * kSegmentNumbers + lane % kSegmentNumbers));
  }

  const std::uint32_t* plan_;
  int at_;
  std::int32_t number_;
};

// Enqueues the plan of a grid of so many blocks. Of params.attention, shapes and sequences count.
void plan_decode(const DecodeParams& params, int num_blocks, void* plan, const Lane& lane);

}  // namespace heddle::sm90
