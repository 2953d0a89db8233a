// The producers of all-gather + GEMM, over a Group and Peers. Both read this rank's shard and make its tiles known to
// the others.
#pragma once

#include "device/channel_calls.h"
#include "device/one_sided.h"
#include "fused/all_gather_linear/shard_tiles.h"
#include "fused/tile_channel.h"

namespace heddle {

// This rank's shard in any memory, with rows `row_stride_bytes` apart.
struct OwnShard {
  const std::byte* data;
  std::size_t row_stride_bytes;
};

// Tile `tile` of the shard of `rank`, packed, to `destination` in the memory of `to`.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void put_tile(const G& group, const P& peers, int to, std::byte* destination,
                                 const ShardTiles& tiles, const OwnShard& shard, int tile) {
  const std::size_t row_bytes = tiles.row_bytes(peers.rank);
  const std::byte* const from = shard.data + static_cast<std::size_t>(tiles.first_row(tile)) * shard.row_stride_bytes;
  if (row_bytes == shard.row_stride_bytes)
    return put(group, peers, to, destination, from, tiles.bytes(peers.rank, tile));
  for (std::int64_t row = 0; row < tiles.rows(peers.rank, tile); ++row)
    put(group, peers, to, destination + static_cast<std::size_t>(row) * row_bytes,
        from + static_cast<std::size_t>(row) * shard.row_stride_bytes, row_bytes);
}

// Alg. 2: every tile to every other rank's inbox, and its slot raised. Ranks are served in the order in which they take
// this rank's tiles (schedule/tile_order.h): rank - 1 comes to this rank's shard first.
struct PushShard {
  ShardTiles tiles;
  OwnShard shard;
  TileSlots slots;

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    for (int step = 1; step < peers.size; ++step) {
      const int to = (peers.rank + peers.size - step) % peers.size;
      for (int tile = group.block(); tile < tiles.tiles(peers.rank); tile += group.blocks()) {
        if (!claim(group, peers, to, slots.channel, tile, "push: credit")) return;
        put_tile(group, peers, to, slots.arriving(peers.rank, tile), tiles, shard, tile);
        fill(group, peers, to, slots.channel, tile);
      }
    }
  }
};

// For Alg. 1, whose shards lie in symmetric memory: offers every tile there. A tile's slots are raised at all ranks once
// it can be read, and it is written again once all have read it.
struct OfferShard {
  ShardTiles tiles;
  OwnShard shard;
  TileSlots slots;

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    for (int tile = group.block(); tile < tiles.tiles(peers.rank); tile += group.blocks()) {
      for (int to = 0; to < peers.size; ++to)
        if (to != peers.rank && !claim(group, peers, to, slots.channel, tile, "pull: credit")) return;
      put_tile(group, peers, peers.rank, slots.offered(tile), tiles, shard, tile);
      for (int to = 0; to < peers.size; ++to)
        if (to != peers.rank) fill(group, peers, to, slots.channel, tile);
    }
  }
};

}  // namespace heddle
