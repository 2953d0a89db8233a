// What fused operators push through: a channel (device/channel.h) with a buffer for each slot, in symmetric memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/channel.h"
#include "fabric/fabric.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

// The part that a body or a kernel takes: trivially copyable. The buffer of a slot always lies at the same place, so
// calls of different shapes may follow each other: its credit guards it.
struct TileSlots {
  Channel channel;
  std::byte* inbox = nullptr;   // [ranks][slots_per_peer] tiles, by sender; symmetric
  std::byte* outbox = nullptr;  // [slots_per_peer] tiles that peers read; symmetric; null if nothing is pulled
  std::size_t tile_bytes = 0;   // a multiple of 64

  // Where tile `index` of `sender` arrives at this rank, or, through Peers::at, at another.
  HEDDLE_HOST_DEVICE std::byte* arriving(int sender, int index) const {
    return inbox + (static_cast<std::size_t>(sender) * static_cast<std::size_t>(channel.slots_per_peer) +
                    static_cast<std::size_t>(index)) *
                       tile_bytes;
  }
  HEDDLE_HOST_DEVICE std::byte* offered(int index) const {
    return outbox + static_cast<std::size_t>(index) * tile_bytes;
  }
};

// Rows in memory that a stream sends as one tile, packed.
struct RowsToSend {
  const std::byte* data;
  std::size_t rows, row_bytes, stride_bytes;
};

struct TileChannelShape {
  int tiles_per_rank;      // that a rank sends to each other, at most
  std::size_t tile_bytes;  // at most
  bool pulled = false;     // whether peers also read tiles where their owner offers them
};

// One rank's end for a team. Constructed and destroyed as SymmetricMemory is.
class TileChannel {
 public:
  // Collective over the fabric's world: ranks that are not of the team make one of another team meanwhile. Throws
  // InvalidArgument, naming `who`, for what is no team or without Capability::peer_addresses; Failure when the heap is
  // too small.
  TileChannel(Fabric& fabric, Ranks team, const TileChannelShape& shape, std::string_view who);

  // Of the symmetric heap.
  static std::size_t heap_bytes(int ranks, const TileChannelShape& shape);

  const TileSlots& slots() const { return slots_; }
  const Peers& peers() const { return peers_; }
  Fabric& fabric() const { return *fabric_; }
  int world_rank(int rank) const { return team_[static_cast<std::size_t>(rank)]; }

  // Enqueues Fabric::put of the rows to the buffer of slot `index` at `receiver`. Does not wait for the slot's credit, and
  // does not fill it.
  void put_by(Stream& stream, int receiver, int index, const RowsToSend& rows) const;
  // The stream as a sender (copy engines): waits for the credit of slot `index` at `receiver`, copies the rows
  // to its buffer there, and fills it.
  void send_by(Stream& stream, int receiver, int index, const RowsToSend& rows) const;

 private:
  Fabric* fabric_;
  Ranks team_;
  Peers peers_;
  SymmetricMemory memory_;
  TileSlots slots_;
};

}  // namespace heddle
