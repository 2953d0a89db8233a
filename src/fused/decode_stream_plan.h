// Which thread block computes what when decode_block.h runs without clusters: one block on each SM, and one stream of
// weights, keys and values through each block's shared memory that never stops between the phases. Index maths, the same
// on the host and in kernels.
//
//   1. rows of Wqkv    tiles of 16, an even share for each block       -> q, k, v in global memory, then all blocks meet
//   2. keys            tiles of 8192 elements of all sequences and KV heads, an even share for each block; where a share
//                      ends inside an item (one KV head of one sequence), its blocks leave partial attention, which the
//                      last one of the item to come merges, in order                     -> attended, then all blocks meet
//   3. rows of Wo      tiles of 16, an even share for each block       -> the output, complete
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/even_parts.h"
#include "fused/decode_block_plan.h"

namespace heddle {

struct DecodeStreamPlan {
  static constexpr int kRowTile = 16;
  static constexpr int kTileElements = 8192;  // of keys, and as many of values

  DecodeBlockShape shape;
  int blocks = 1;
  int window = 0;  // 0: none

  HEDDLE_HOST_DEVICE constexpr int qkv_rows() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
  HEDDLE_HOST_DEVICE constexpr int columns() const { return shape.heads * shape.head_dim; }
  HEDDLE_HOST_DEVICE constexpr int keys_of_tile() const { return kTileElements / shape.head_dim; }

  // A block's tiles of `rows` rows.
  HEDDLE_HOST_DEVICE constexpr DecodeRange row_tiles(int rows, int block) const {
    return share(static_cast<std::uint64_t>(rows / kRowTile), blocks, block);
  }

  // The older keys of a sequence lie in the tiles [first_tile, first_tile + tiles) of positions; at least one tile, so
  // that somebody takes the new key.
  HEDDLE_HOST_DEVICE constexpr int first_key(int context_len) const {
    return window > 0 && context_len > window ? context_len - window : 0;
  }
  HEDDLE_HOST_DEVICE constexpr int first_tile(int context_len) const { return first_key(context_len) / keys_of_tile(); }
  HEDDLE_HOST_DEVICE constexpr int tiles(int context_len) const {
    const int end = (context_len - 1 + keys_of_tile() - 1) / keys_of_tile(), first = first_tile(context_len);
    return end > first ? end - first : 1;
  }
  // Of all sequences and KV heads.
  HEDDLE_HOST_DEVICE constexpr int all_tiles(const std::int32_t* context_len) const {
    int sum = 0;
    for (int i = 0; i < shape.tokens; ++i) sum += tiles(context_len[i]) * shape.kv_heads;
    return sum;
  }
  // The share of `block` among the first `sharing` blocks; the others have none.
  HEDDLE_HOST_DEVICE static constexpr DecodeRange share(std::uint64_t count, int sharing, int block) {
    const auto parts = static_cast<std::uint64_t>(sharing);
    if (block >= sharing) return {static_cast<int>(count), static_cast<int>(count)};
    return {static_cast<int>(begin_of_part<std::uint64_t>(count, static_cast<std::uint64_t>(block), parts)),
            static_cast<int>(begin_of_part<std::uint64_t>(count, static_cast<std::uint64_t>(block) + 1, parts))};
  }
  // Of `all` tiles of keys: no more blocks share them than there are tiles, so that the blocks of an item lie together.
  HEDDLE_HOST_DEVICE constexpr int blocks_of(int all) const { return all < blocks ? all : blocks; }
  // The block whose share has the tile.
  HEDDLE_HOST_DEVICE constexpr int block_of(int all, int tile) const {
    return static_cast<int>(part_of<std::uint64_t>(static_cast<std::uint64_t>(all), static_cast<std::uint64_t>(tile),
                                                   static_cast<std::uint64_t>(blocks_of(all))));
  }
};

// A block's part of one item.
struct DecodeSegment {
  int sequence = 0, kv_head = 0;
  int tile = 0;                         // the first one, of positions
  int tiles = 0;                        // 0: there is no further segment
  bool has_new_key = false;             // it ends the item
  int first_block = 0, last_block = 0;  // whose shares the item lies in

  HEDDLE_HOST_DEVICE constexpr int num_blocks() const { return last_block - first_block + 1; }
  // Where the block leaves its part of an item that it shares: with the blocks before it, or with those after it.
  HEDDLE_HOST_DEVICE static constexpr int slot_of(int block, int first_block) { return block == first_block ? 1 : 0; }
};

// Goes through a block's segments, in order.
class DecodeSegments {
 public:
  HEDDLE_HOST_DEVICE constexpr DecodeSegments(const DecodeStreamPlan& plan, const std::int32_t* context_len, int block)
      : plan_(plan), context_len_(context_len), all_(plan.all_tiles(context_len)) {
    const DecodeRange mine = plan.share(static_cast<std::uint64_t>(all_), plan.blocks_of(all_), block);
    at_ = mine.begin;
    end_ = mine.end;
    while (sequence_ < plan.shape.tokens && first_of_sequence_ + tiles_here() * plan.shape.kv_heads <= at_)
      leave_sequence();
  }

  HEDDLE_HOST_DEVICE constexpr DecodeSegment next() {
    if (at_ >= end_) return {};
    const int tiles = tiles_here(), head = (at_ - first_of_sequence_) / tiles;
    const int item = first_of_sequence_ + head * tiles, item_end = item + tiles,
              end = end_ < item_end ? end_ : item_end;
    const DecodeSegment segment{.sequence = sequence_,
                                .kv_head = head,
                                .tile = plan_.first_tile(context_len_[sequence_]) + at_ - item,
                                .tiles = end - at_,
                                .has_new_key = end == item_end,
                                .first_block = plan_.block_of(all_, item),
                                .last_block = plan_.block_of(all_, item_end - 1)};
    at_ = end;
    if (end == item_end && head + 1 == plan_.shape.kv_heads) leave_sequence();
    return segment;
  }

 private:
  HEDDLE_HOST_DEVICE constexpr int tiles_here() const { return plan_.tiles(context_len_[sequence_]); }
  HEDDLE_HOST_DEVICE constexpr void leave_sequence() {
    first_of_sequence_ += tiles_here() * plan_.shape.kv_heads;
    ++sequence_;
  }

  const DecodeStreamPlan& plan_;
  const std::int32_t* context_len_;
  int all_, at_ = 0, end_ = 0;
  int sequence_ = 0, first_of_sequence_ = 0;
};

// Every tile of every item is some block's, once; an item's last block has its new key; a block shares at most two items,
// the first and the last of its own, whose parts have different slots.
constexpr bool decode_stream_plan_is_complete(const DecodeStreamPlan& plan, const std::int32_t* context_len) {
  int sequence = 0, head = 0, tile = plan.first_tile(context_len[0]);
  int parts = 0;  // of the item
  for (int block = 0; block < plan.blocks; ++block) {
    DecodeSegments segments(plan, context_len, block);
    int used[2] = {0, 0};
    for (DecodeSegment s = segments.next(); s.tiles > 0; s = segments.next()) {
      if (s.sequence != sequence || s.kv_head != head || s.tile != tile) return false;
      if (block < s.first_block || block > s.last_block) return false;
      if (s.has_new_key != (block == s.last_block)) return false;
      if (s.num_blocks() > 1 && ++used[DecodeSegment::slot_of(block, s.first_block)] > 1) return false;
      tile += s.tiles;
      ++parts;
      if (!s.has_new_key) continue;
      if (parts != s.num_blocks()) return false;  // as many as leave a part
      parts = 0;
      if (tile != plan.first_tile(context_len[sequence]) + plan.tiles(context_len[sequence])) return false;
      if (++head == plan.shape.kv_heads) head = 0, ++sequence;
      if (sequence < plan.shape.tokens) tile = plan.first_tile(context_len[sequence]);
    }
  }
  return sequence == plan.shape.tokens && head == 0;
}
inline constexpr std::int32_t kContextsOfProof[] = {1, 1000, 64, 65, 4097, 129};
static_assert(decode_stream_plan_is_complete({{1, 4096, 32, 32, 128}, 132, 0}, kContextsOfProof));
static_assert(decode_stream_plan_is_complete({{6, 4096, 32, 8, 128}, 132, 0}, kContextsOfProof));
static_assert(decode_stream_plan_is_complete({{6, 2048, 32, 8, 64}, 16, 100}, kContextsOfProof));
static_assert(decode_stream_plan_is_complete({{6, 512, 2, 1, 128}, 7, 0}, kContextsOfProof));
static_assert(decode_stream_plan_is_complete({{1, 512, 7, 1, 128}, 132, 0}, kContextsOfProof + 1));
static_assert(decode_stream_plan_is_complete({{1, 512, 8, 4, 128}, 50, 0}, kContextsOfProof + 1));

}  // namespace heddle
