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

// A shard in packets, row after row; the last packet of a row may be shorter. An empty shard is one packet without data,
// because every rank must hear from every other in each call (device/low_latency.cuh).
struct ShardPackets {
  ShardTiles tiles;

  HEDDLE_HOST_DEVICE bool is_empty(int rank) const { return tiles.shard_rows(rank) == 0 || tiles.columns(rank) == 0; }
  HEDDLE_HOST_DEVICE std::uint32_t of_row(int rank) const {
    return static_cast<std::uint32_t>(packets_of(tiles.row_bytes(rank)));
  }
  HEDDLE_HOST_DEVICE std::uint32_t count(int rank) const {
    const std::uint32_t packets = static_cast<std::uint32_t>(tiles.shard_rows(rank)) * of_row(rank);
    return packets > 0 ? packets : 1;
  }
  std::uint32_t most() const {
    std::uint32_t most = 1;
    for (int rank = 0; rank < tiles.shards.ranks; ++rank) most = std::max(most, count(rank));
    return most;
  }
};

// Groups need not run at once: a lane waits for packets of the indices that it has sent itself.
// Inbox: [rank][packet of its shard].
struct PushSmallM {
  ShardPackets packets;
  std::uint32_t most;  // packets.most()
  OwnShard shard;
  PacketMemory memory;
  std::byte* whole;  // A, [M, K], packed

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    constexpr int kAtOnce = 4;  // ranks whose packets a lane awaits together
    const Epoch epoch = begin_epoch(group, memory);
    const ByteSlots slots = byte_slots(memory, epoch);
    const bool has_own = !packets.is_empty(peers.rank);
    const std::uint32_t mine = packets.count(peers.rank), of_own_row = packets.of_row(peers.rank);
    const std::size_t own_bytes = packets.tiles.row_bytes(peers.rank);
    const auto own = [&](std::size_t i) {
      if (!has_own) return Packet{};
      const auto index = static_cast<std::uint32_t>(i);
      return load_packet(shard.data + index / of_own_row * shard.row_stride_bytes, index % of_own_row, own_bytes);
    };
    const auto keep = [&](std::size_t i, int p, const Packet& packet) {
      if (packets.is_empty(p)) return;
      const auto index = static_cast<std::uint32_t>(i);
      const std::uint32_t of_row = packets.of_row(p);
      store_packet(row_in_whole(p, index / of_row), index % of_row, packets.tiles.row_bytes(p), packet);
    };
    // Slots lie `most` packets apart, and push_to_all takes them to be `mine` apart.
    push_to_all(group, peers, slots + static_cast<std::size_t>(peers.rank) * (most - mine), mine, own);
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * most);
    static_cast<void>(receive_in_rank_order<kAtOnce>(
        group, peers, "small M: shard", slots, most, [&](int p) { return std::size_t{packets.count(p)}; }, own, keep));
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
