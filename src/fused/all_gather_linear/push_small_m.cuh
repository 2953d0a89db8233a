// The push of an all-gather of few rows: every shard goes to its place in A at all ranks by packets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/low_latency.cuh"
#include "fused/all_gather_linear/produce.cuh"
#include "fused/all_gather_linear/shard_tiles.h"
#include "fused/packet_inbox.h"

namespace heddle {

// A shard in packets, row after row; the last packet of a row may be shorter.
struct ShardPackets {
  ShardTiles tiles;

  HEDDLE_HOST_DEVICE std::uint32_t of_row(int rank) const {
    return static_cast<std::uint32_t>(packets_of(tiles.row_bytes(rank)));
  }
  HEDDLE_HOST_DEVICE std::uint32_t count(int rank) const {
    return static_cast<std::uint32_t>(tiles.shard_rows(rank)) * of_row(rank);
  }
  std::uint32_t most() const {
    std::uint32_t most = 0;
    for (int rank = 0; rank < tiles.shards.ranks; ++rank) most = std::max(most, count(rank));
    return most;
  }
};

// Every rank sends as many packets as the largest shard has; those behind its own shard have no data. So every rank
// hears from every other in each call, as it must (device/low_latency.cuh), and a lane knows without index maths what it
// awaits. A lane waits for packets of the indices that it has sent itself; so
// either all groups of a rank run at once, or all ranks have as many and begin them in order.
// Inbox: [rank][packet of its shard].
template <int kAtOnce>  // ranks whose packets a lane awaits together
struct PushSmallM {
  ShardPackets packets;
  std::uint32_t most;  // packets.most()
  OwnShard shard;
  PacketMemory memory;
  std::byte* whole;  // A, [M, K], packed

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    const Epoch epoch = begin_epoch(group, memory);
    const ByteSlots slots = byte_slots(memory, epoch);
    const std::uint32_t of_own_row = packets.of_row(peers.rank), own_count = packets.count(peers.rank);
    const std::size_t own_bytes = packets.tiles.row_bytes(peers.rank);
    const auto own = [&](std::size_t i) {
      const auto index = static_cast<std::uint32_t>(i);
      if (index >= own_count) return Packet{};
      return load_packet(shard.data + index / of_own_row * shard.row_stride_bytes, index % of_own_row, own_bytes);
    };
    const auto keep = [&](std::size_t i, int p, const Packet& packet) {
      const auto index = static_cast<std::uint32_t>(i);
      if (index >= packets.count(p)) return;
      const std::uint32_t of_row = packets.of_row(p);
      store_packet(row_in_whole(p, index / of_row), index % of_row, packets.tiles.row_bytes(p), packet);
    };
    push_to_all(group, peers, slots, most, own);
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * most);
    static_cast<void>(receive_in_rank_order<kAtOnce>(
        group, peers, "small M: shard", slots, most, [&](int) { return std::size_t{most}; }, own, keep));
  }

 private:
  HEDDLE_HOST_DEVICE std::byte* row_in_whole(int owner, std::uint32_t row) const {
    const ShardTiles& tiles = packets.tiles;
    const auto begin = static_cast<std::size_t>(tiles.shards.begin(owner));
    const std::size_t row_bytes =
        static_cast<std::size_t>(tiles.of_rows ? tiles.other : tiles.shards.total()) * tiles.element_bytes;
    return whole + (tiles.of_rows ? begin + row : row) * row_bytes + (tiles.of_rows ? 0 : begin * tiles.element_bytes);
  }
};

}  // namespace heddle
