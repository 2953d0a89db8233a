// Splits a step's keys over the blocks of the decode kernel (split-KV). One warp per block of that grid writes its
// splits. docs/notes/attention_gpu.md compares the ways to split.
#include <cstdint>

#include "base/checked.h"
#include "device/even_parts.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.cuh"

namespace heddle::sm90 {
namespace {

constexpr int kMostTilesInCluster = 24;  // per block

// One sequence of the step. It has `items` work items, one per KV head and item_rows rows, each of `tiles` tiles of
// kDecodeKeys keys, from position first_tile * kDecodeKeys on.
struct DecodeSequence {
  int first_token = 0, num_new = 0, context_len = 0;
  int first_key = 0;  // the first that its first new token sees
  int first_tile = 0, tiles = 0, items = 0;

  DecodeSequence() = default;
  __device__ DecodeSequence(const DecodeParams& params, int sequence) {
    const PagedSequences& sequences = params.attention.sequences;
    if (sequence >= sequences.num_sequences) return;
    context_len = params.attention.kv.count(sequences.context_len[sequence]);
    first_token = sequences.query_start[sequence];
    num_new = sequences.query_start[sequence + 1] - first_token;
    const int rows = num_new * params.group;
    if (rows <= 0 || rows > params.max_rows) return;
    if (params.attention.window > 0) first_key = max(0, context_len - num_new - params.attention.window + 1);
    first_tile = first_key / kDecodeKeys;
    // Where there are no keys, which AttentionSums allows, a tile without any: its sums are stored like others.
    tiles = max(1, ceil_div(context_len, kDecodeKeys) - first_tile);
    items = params.attention.kv.num_kv_heads * ceil_div(rows, params.item_rows);
  }
};

// Enumerates the splits of this block; the same in every lane of its one warp. There are three policies:
// - Clusters and few tiles: each cluster has one item, whose tiles its blocks share. Merging is fast, but some blocks
//   have nothing to do.
// - Otherwise, if each block can take one split of one item and none gets much more than the others: equal splits.
// - Otherwise the tiles of all items are concatenated, and each block takes an equal run, perhaps of several items.
class DecodeWalk {
 public:
  __device__ explicit DecodeWalk(const DecodeParams& params) : params_(params) {
    int tiles = 0, items = 0;
#pragma unroll 1
    for (int s = 0; s < num_sequences(); s += 32) {
      const DecodeSequence of(params, s + lane());
      tiles += __reduce_add_sync(~0u, of.tiles * of.items);
      items += __reduce_add_sync(~0u, of.items);
    }
    if (tiles == 0) return;
    total_ = tiles;
    by_clusters_ = params.cluster > 1 && tiles <= kMostTilesInCluster * params.cluster * items;
    if (by_clusters_)
      total_ = items;
    else
      find_split(tiles, items);
    blocks_ = by_clusters_ || split_tiles_ > 0 ? total_ : min(static_cast<int>(gridDim.x), total_);
    const int block = static_cast<int>(by_clusters_ ? blockIdx.x / params.cluster : blockIdx.x);
    if (block >= blocks_) return;
    unit_ = share_of(block);
    end_ = share_of(block + 1);
    find_sequence();
  }

  __device__ bool done() const {
    return unit_ >= end_;
  }

  __device__ DecodeSplit next() {
    if (unit_ >= sequence_begin_ + units_of(of_)) {
      do {
        sequence_begin_ += units_of(of_);
        items_before_ += of_.items;
        of_ = DecodeSequence(params_, ++sequence_);
      } while (of_.items == 0);
    }
    const int unit = unit_ - sequence_begin_;  // within the sequence
    const int heads = params_.attention.kv.num_kv_heads, block = static_cast<int>(blockIdx.x);
    DecodeSplit split{.sequence = sequence_,
                      .first_token = of_.first_token,
                      .num_new = of_.num_new,
                      .context_len = of_.context_len,
                      .first_key = of_.first_key};
    int item = 0;
    if (by_clusters_) {
      const int rank = block % params_.cluster, share = ceil_div(of_.tiles, params_.cluster);
      item = unit;
      split.kind = SplitKind::cluster;
      split.begin = of_.first_tile + min(rank * share, of_.tiles);
      split.end = of_.first_tile + min((rank + 1) * share, of_.tiles);
      split.first_block = block - rank;
      split.last_block = split.first_block + ceil_div(of_.tiles, share) - 1;
      ++unit_;
    } else if (split_tiles_ > 0) {
      const int count = splits_of(of_), index = unit % count;
      item = unit / count;
      split.kind = SplitKind::equal;
      split.begin = of_.first_tile + index * of_.tiles / count;
      split.end = of_.first_tile + (index + 1) * of_.tiles / count;
      split.first_block = block - index;
      split.last_block = split.first_block + count - 1;
      ++unit_;
    } else {
      const int tile = unit % of_.tiles, count = min(end_ - unit_, of_.tiles - tile);
      item = unit / of_.tiles;
      split.kind = SplitKind::run;
      split.begin = of_.first_tile + tile;
      split.end = split.begin + count;
      split.first_block = block_of(unit_ - tile);
      split.last_block = block_of(unit_ - tile + of_.tiles - 1);
      unit_ += count;
    }
    split.kv_head = item % heads;
    split.row_tile = item / heads;
    item_ = items_before_ + item;
    return split;
  }

  // The item of the last next(), counted over all items of the step.
  __device__ int item() const {
    return item_;
  }

 private:
  static __device__ int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  __device__ int num_sequences() const {
    return params_.attention.sequences.num_sequences;
  }
  __device__ int splits_of(const DecodeSequence& of) const {
    return ceil_div(of.tiles, split_tiles_);
  }
  __device__ int units_of(const DecodeSequence& of) const {
    return by_clusters_ ? of.items : split_tiles_ > 0 ? of.items * splits_of(of) : of.items * of.tiles;
  }

  // The first unit of a block. In 64 bits: units times blocks exceed 2^32 from 16 million units on.
  __device__ int share_of(int block) const {
    return static_cast<int>(begin_of_part<std::uint64_t>(total_, block, blocks_));
  }
  // The block that has the unit.
  __device__ int block_of(int unit) const {
    return static_cast<int>(part_of<std::uint64_t>(total_, unit, blocks_));
  }

  // Sets split_tiles_ to the least number of tiles per block with which the items need no more blocks than there are,
  // if that is little more than an equal share; sets total_ to the blocks. Each lane tries one number.
  __device__ void find_split(int tiles, int items) {
    constexpr int kFewSequences = 32;
    const int blocks = static_cast<int>(gridDim.x);
    if (items > blocks || num_sequences() > kFewSequences) return;
    const DecodeSequence mine(params_, lane());
    // The sum of the costs of tiles and of partial results is least where a split has as many tiles as the square root of
    // their number times the cost of a partial result.
    const int longest = __reduce_max_sync(~0u, mine.tiles);
    const int worthwhile =
        static_cast<int>(sqrtf(static_cast<float>(longest * params_.item_rows) * params_.tiles_of_merge));
    const int share = max(ceil_div(tiles, blocks), worthwhile), tried = share + lane();
    int needed = 0;
#pragma unroll 1
    for (int s = 0; s < num_sequences(); ++s)
      needed += __shfl_sync(~0u, mine.items, s) * ceil_div(__shfl_sync(~0u, mine.tiles, s), tried);
    const unsigned enough = __ballot_sync(~0u, needed <= blocks && lane() <= 4 + share / 16);
    if (enough == 0) return;
    const int first = __ffs(static_cast<int>(enough)) - 1;
    split_tiles_ = share + first;
    total_ = __shfl_sync(~0u, needed, first);
  }

  // Finds the sequence that holds unit_.
  __device__ void find_sequence() {
#pragma unroll 1
    for (int s = 0; s < num_sequences(); s += 32) {
      const DecodeSequence mine(params_, s + lane());
      const int units = units_of(mine);
      int up_to = units;
      for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(~0u, up_to, step);
        if (lane() >= step) up_to += before;
      }
      const unsigned beyond = __ballot_sync(~0u, sequence_begin_ + up_to > unit_);
      const int first = beyond == 0 ? 32 : __ffs(static_cast<int>(beyond)) - 1;
      items_before_ += __reduce_add_sync(~0u, lane() < first ? mine.items : 0);
      if (beyond != 0) {
        sequence_ = s + first;
        sequence_begin_ += __shfl_sync(~0u, up_to - units, first);
        of_ = DecodeSequence(params_, sequence_);
        return;
      }
      sequence_begin_ += __shfl_sync(~0u, up_to, 31);
    }
  }

  const DecodeParams& params_;
  DecodeSequence of_;
  bool by_clusters_ = false;
  int split_tiles_ = 0;         // per block, if each takes one split
  int total_ = 0, blocks_ = 0;  // units of the step: items, splits, or tiles; clusters or blocks that share them
  int unit_ = 0, end_ = 0;      // of this block
  int sequence_ = 0, sequence_begin_ = 0;
  int items_before_ = 0, item_ = 0;
};

__device__ void store(DecodeSplit* plan, int place, const DecodeSplit& split) {
  if (threadIdx.x == 0) plan[place] = split;
}

// Triggers PDL after all blocks have written, so that later kernels may read the plan before they wait.
__global__ void __launch_bounds__(32)
    plan_decode_blocks(const __grid_constant__ DecodeParams params, DecodeSplit* plan) {
  if (params.attention.older_keys == OlderKeys::in_flight) wait_for_earlier_kernels();
  int place = static_cast<int>(blockIdx.x);
  DecodeSplit split;
  DecodeWalk walk(params);
  if (!walk.done()) split = walk.next();
  while (!walk.done()) {
    const DecodeSplit following = walk.next();
    split.next = static_cast<int>(gridDim.x) + walk.item();
    store(plan, place, split);
    place = split.next;
    split = following;
  }
  store(plan, place, split);
  __threadfence();
  __syncwarp();  // the first lane that triggers does so for the block, and only that lane has written
  let_later_kernels_start();
  wait_for_earlier_kernels();
}

}  // namespace

void plan_decode(const DecodeParams& params, int num_blocks, void* plan, const Lane& lane) {
  launch_sm90("attention", plan_decode_blocks, {.grid = dim3(static_cast<unsigned>(num_blocks)), .block = dim3(32)},
              lane, params, static_cast<DecodeSplit*>(plan));
}

}  // namespace heddle::sm90
