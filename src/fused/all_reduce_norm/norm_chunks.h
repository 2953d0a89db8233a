// How a pipelined call is cut: each owner's rows into chunks, which go round-robin to the blocks, and slots in which
// chunks are on their way. All ranks cut alike, so block b exchanges with blocks b of the other ranks only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "fused/shards.h"

namespace heddle {

// Constructed on the host, since it divides; trivially copyable.
class NormChunks {
 public:
  static constexpr std::int64_t kMostRows = 8;  // of a chunk
  // Rows of one chunk are on their way together: larger chunks take longer from the first push to the last copy, smaller
  // ones have a flag for few bytes.
  static constexpr std::size_t kMostChunkBytes = 16384;
  // A warp that keeps flags tells of a chunk after it has waited for the next (device/warp_chunks.cuh): with two slots,
  // who pushes would wait for a row that is only sent when the next share has come.
  static constexpr std::size_t kFewestSlots = 3, kEnoughSlots = 4, kMostSlots = 16;

  // Shares and normalised rows have a half of the slots each, whatever the shapes of calls: shares of the next call may
  // come while rows of the last are still copied out. A slot holds a chunk's rows from every rank.
  static constexpr std::size_t slot_bytes(int ranks, std::int64_t chunk_rows, std::size_t row_bytes) {
    return (static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunk_rows) * row_bytes + 15) / 16 * 16;
  }
  static constexpr std::size_t half_of(std::size_t slots_bytes) { return slots_bytes / 32 * 16; }
  // Whether one block has the fewest slots, of one row.
  static constexpr bool fits(int ranks, std::size_t x_bytes, std::size_t y_bytes, std::size_t slots_bytes) {
    const std::size_t larger = x_bytes > y_bytes ? x_bytes : y_bytes;
    return kFewestSlots * slot_bytes(ranks, 1, larger) <= half_of(slots_bytes);
  }

  // Bytes are of a row. Takes fewer blocks than `blocks` where slots or rows do not suffice. Requires fits().
  NormChunks(const EvenShards& rows, std::size_t x_bytes, std::size_t y_bytes, int blocks, std::size_t slots_bytes)
      : x_bytes_(x_bytes), y_bytes_(y_bytes), half_(half_of(slots_bytes)) {
    const std::int64_t most = rows.largest();
    const std::size_t larger = x_bytes > y_bytes ? x_bytes : y_bytes;
    const auto slots_in = [&](std::int64_t chunk_rows, int of_blocks) {
      return half_ / static_cast<std::size_t>(of_blocks) / slot_bytes(rows.ranks, chunk_rows, larger);
    };
    blocks_ = most < blocks ? static_cast<int>(most > 0 ? most : 1) : blocks;
    while (slots_in(1, blocks_) < kFewestSlots) --blocks_;
    const std::int64_t of_block = (most + blocks_ - 1) / blocks_;
    while (chunk_rows_ * 2 <= kMostRows && chunk_rows_ * 2 <= of_block &&
           2 * static_cast<std::size_t>(chunk_rows_) * larger <= kMostChunkBytes &&
           slots_in(2 * chunk_rows_, blocks_) >= kEnoughSlots)
      chunk_rows_ *= 2;
    const std::size_t slots = slots_in(chunk_rows_, blocks_);
    slots_ = static_cast<std::uint32_t>(slots < kMostSlots ? slots : kMostSlots);
    share_slot_bytes_ = slot_bytes(rows.ranks, chunk_rows_, x_bytes);
    normed_slot_bytes_ = slot_bytes(rows.ranks, chunk_rows_, y_bytes);
    chunks_ = static_cast<std::uint32_t>((most + chunk_rows_ - 1) / chunk_rows_);
  }

  HEDDLE_HOST_DEVICE int blocks() const { return blocks_; }
  HEDDLE_HOST_DEVICE std::uint32_t slots() const { return slots_; }  // of a block
  HEDDLE_HOST_DEVICE std::int64_t chunk_rows() const { return chunk_rows_; }

  // Chunks of each owner's rows that this block handles; of an owner with fewer rows the last may be empty.
  HEDDLE_HOST_DEVICE std::uint32_t chunks(int block) const {
    const auto b = static_cast<std::uint32_t>(block), blocks = static_cast<std::uint32_t>(blocks_);
    return chunks_ > b ? (chunks_ - b + blocks - 1) / blocks : 0;
  }
  // Chunk `c` of `block`: its first row among an owner's, and how many of the owner's `count` rows it has.
  HEDDLE_HOST_DEVICE std::int64_t first_row(int block, std::uint32_t c) const {
    return (static_cast<std::int64_t>(c) * blocks_ + block) * chunk_rows_;
  }
  HEDDLE_HOST_DEVICE std::int64_t rows(std::int64_t count, int block, std::uint32_t c) const {
    const std::int64_t left = count - first_row(block, c);
    return left < 0 ? 0 : left < chunk_rows_ ? left : chunk_rows_;
  }

  // Byte offsets among the slots: of what `source` sends as its share of chunk c, and of what it sends as the owner.
  HEDDLE_HOST_DEVICE std::size_t share(int source, int block, std::uint32_t c) const {
    return slot(block, c) * share_slot_bytes_ + static_cast<std::size_t>(source * chunk_rows_) * x_bytes_;
  }
  HEDDLE_HOST_DEVICE std::size_t normed(int source, int block, std::uint32_t c) const {
    return half_ + slot(block, c) * normed_slot_bytes_ + static_cast<std::size_t>(source * chunk_rows_) * y_bytes_;
  }

 private:
  HEDDLE_HOST_DEVICE std::size_t slot(int block, std::uint32_t c) const {
    return static_cast<std::size_t>(block) * slots_ + c % slots_;
  }

  std::size_t x_bytes_, y_bytes_, half_;
  std::size_t share_slot_bytes_ = 0, normed_slot_bytes_ = 0;
  std::int64_t chunk_rows_ = 1;
  int blocks_ = 1;
  std::uint32_t slots_ = 0;
  std::uint32_t chunks_ = 0;  // of all blocks
};

}  // namespace heddle
