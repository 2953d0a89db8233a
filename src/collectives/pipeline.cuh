// Cuts a large buffer into chunks for pipelined transfer in both directions without a barrier. Each chunk has a flag
// and goes through a slot; a slot is reused once the flag of its chunk's sum has come back.
#pragma once

#include "collectives/collective_memory.h"
#include "device/pieces.cuh"

namespace heddle {

// Cuts a buffer into one piece per rank and each piece into chunks, which go round-robin to the blocks. All ranks cut
// alike, so block b exchanges only with blocks b of the other ranks. Pieces may differ in size; then the last chunk of
// a smaller one may be empty. Constructed on the host, since it divides.
class ChunkCut {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 10;  // what 256 threads copy four packets each of
  static constexpr std::size_t kFewestSlots = 4;  // in flight, being added, sum on its way back, and one to spare

  // Chunk size for `slots_bytes` of slots for all blocks and ranks; 0: too few for any chunk.
  static constexpr std::size_t chunk_bytes(std::size_t slots_bytes, int blocks, int ranks) {
    const std::size_t most =
        slots_bytes / (static_cast<std::size_t>(blocks) * static_cast<std::size_t>(ranks) * kFewestSlots);
    return most < kMostBytes ? most / kPacketBytes * kPacketBytes : kMostBytes;
  }

  // `bytes` > 0, in chunks of chunk_bytes(slots_bytes, blocks, ranks) > 0.
  ChunkCut(std::size_t bytes, int ranks, int blocks, std::size_t slots_bytes)
      : pieces_(bytes, ranks),
        chunk_(chunk_bytes(slots_bytes, blocks, ranks)),
        blocks_(static_cast<std::uint32_t>(blocks)),
        ranks_(static_cast<std::uint32_t>(ranks)),
        slots_(static_cast<std::uint32_t>(slots_bytes / (std::size_t{blocks_} * ranks_ * chunk_))),
        chunks_(static_cast<std::uint32_t>((pieces_.most_packets() * kPacketBytes + chunk_ - 1) / chunk_)) {}

  // Chunks of each piece that this block handles.
  HEDDLE_HOST_DEVICE std::uint32_t chunks(int block) const {
    const auto b = static_cast<std::uint32_t>(block);
    return chunks_ > b ? (chunks_ - b + blocks_ - 1) / blocks_ : 0;
  }
  HEDDLE_HOST_DEVICE std::uint32_t slots() const { return slots_; }  // per block and rank

  // Chunk `c` of `block` in piece `p`: bytes [begin, begin + size) of the buffer.
  HEDDLE_HOST_DEVICE std::size_t begin(int p, int block, std::uint32_t c) const {
    return pieces_.begin(p) + in_piece(block, c);
  }
  HEDDLE_HOST_DEVICE std::size_t size(int p, int block, std::uint32_t c) const {
    const std::size_t whole = pieces_.size(p), at = in_piece(block, c);
    return at >= whole ? 0 : whole - at < chunk_ ? whole - at : chunk_;
  }

  // Byte offset among the slots of `source`'s share of chunk `c` of `block`.
  HEDDLE_HOST_DEVICE std::size_t slot(int source, int block, std::uint32_t c) const {
    const std::uint32_t row = static_cast<std::uint32_t>(block) * slots_ + c % slots_;
    return (std::size_t{row} * ranks_ + static_cast<std::uint32_t>(source)) * chunk_;
  }

 private:
  HEDDLE_HOST_DEVICE std::size_t in_piece(int block, std::uint32_t c) const {
    return (std::size_t{c} * blocks_ + static_cast<std::uint32_t>(block)) * chunk_;
  }

  EvenPieces pieces_;
  std::size_t chunk_;
  std::uint32_t blocks_, ranks_;
  std::uint32_t slots_;
  std::uint32_t chunks_;  // of all blocks
};

}  // namespace heddle
