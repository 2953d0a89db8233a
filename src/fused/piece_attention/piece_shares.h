// Which blocks of a GPU attend to which keys. A work is some queries of one head, with all keys that they see. Blocks take
// whole works by turns while there is one for each. What is left over would keep some blocks busy and the others idle for as
// long as a work takes: of 1728 works on 132 SMs 7 % of the time. So the last round and what is left over are divided evenly by
// tiles of keys, in the order of works (the two-tile form of Stream-K, Osama et al., 2023), and the sums of a work that several
// blocks have had are merged.
#pragma once

#include <cstdint>
#include <limits>

#include "base/host_device.h"
#include "device/even_parts.h"

namespace heddle {

// Tiles [first, end) of a work's keys; work is -1 behind a block's last item.
struct PieceItem {
  int work = -1;
  int first = 0, end = 0;

  HEDDLE_HOST_DEVICE bool is_over() const { return work < 0; }
};

class PieceShares {
 public:
  PieceShares() = default;
  // Works of `key_tiles` each, all whole. blocks >= 1.
  constexpr PieceShares(int works, int key_tiles, int blocks)
      : works_(works), whole_(works), key_tiles_(key_tiles), blocks_(blocks) {}

  // The same, with what whole works would leave idle divided where that is worth it: each block then has at least one tile.
  static constexpr PieceShares divided(int works, int key_tiles, int blocks) {
    const int rounds = (works + blocks - 1) / blocks;  // of whole works
    // Tiles for which a block is idle on average, in the time of as many.
    const std::int64_t idle = (std::int64_t{rounds} * blocks - works) * key_tiles / blocks;
    const int whole = rounds > 2 ? (rounds - 2) * blocks : 0;
    const std::int64_t tiles = std::int64_t{works - whole} * key_tiles;
    if (idle < kWorthTiles || tiles < blocks || (tiles + 1) * blocks > std::numeric_limits<std::int32_t>::max())
      return PieceShares(works, key_tiles, works < blocks ? works : blocks);
    PieceShares result(works, key_tiles, blocks);
    result.whole_ = whole;
    return result;
  }

  HEDDLE_HOST_DEVICE int blocks() const { return blocks_; }
  // The works from here on are divided.
  HEDDLE_HOST_DEVICE int first_divided() const { return whole_; }
  HEDDLE_HOST_DEVICE int divided_works() const { return works_ - whole_; }

  // What a block does after `index` others, in order.
  HEDDLE_HOST_DEVICE PieceItem item(int block, int index) const {
    const int work = block + index * blocks_;
    if (work < whole_) return {work, 0, key_tiles_};
    if (divided_works() == 0) return {};
    const int begin = share(block), end = share(block + 1);
    const int at = begin / key_tiles_ + index - whole_ / blocks_;  // counted from the first divided work
    const int first = begin - at * key_tiles_, last = end - at * key_tiles_;
    if (last <= 0) return {};
    return {whole_ + at, first > 0 ? first : 0, last < key_tiles_ ? last : key_tiles_};
  }

  HEDDLE_HOST_DEVICE bool is_whole(const PieceItem& item) const { return item.first == 0 && item.end == key_tiles_; }

  // The blocks [first_block(work), last_block(work)] have tiles of a divided work, in the order of keys.
  HEDDLE_HOST_DEVICE int first_block(int work) const { return block_of((work - whole_) * key_tiles_); }
  HEDDLE_HOST_DEVICE int last_block(int work) const { return block_of((work - whole_ + 1) * key_tiles_ - 1); }

  // Where a block leaves its sums of a work that it has a part of: at most two, as only its first and its last item are parts.
  static constexpr int kSlotsOfBlock = 2;
  HEDDLE_HOST_DEVICE static int slot(int block, bool begins_work) {
    return kSlotsOfBlock * block + (begins_work ? 1 : 0);
  }

 private:
  // Sums of a part go to memory and back, which takes about as long as two tiles of keys.
  static constexpr int kWorthTiles = 4;

  HEDDLE_HOST_DEVICE int share(int block) const {
    return static_cast<int>(
        begin_of_part(tiles(), static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(blocks_)));
  }
  HEDDLE_HOST_DEVICE int block_of(int tile) const {
    return static_cast<int>(part_of(tiles(), static_cast<std::uint32_t>(tile), static_cast<std::uint32_t>(blocks_)));
  }
  HEDDLE_HOST_DEVICE std::uint32_t tiles() const {
    return static_cast<std::uint32_t>(divided_works()) * static_cast<std::uint32_t>(key_tiles_);
  }

  int works_ = 0, whole_ = 0;  // the first works are whole, a multiple of the blocks unless all are
  int key_tiles_ = 0, blocks_ = 1;
};

}  // namespace heddle
