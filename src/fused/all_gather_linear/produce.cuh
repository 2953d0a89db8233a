// The producers of all-gather + GEMM, over a Group and Peers. Both read this rank's shard and make its tiles known to
// the others.
#pragma once

#include "device/channel_calls.h"
#include "device/even_parts.h"
#include "device/one_sided.h"
#include "device/vector_copy.h"
#include "fused/all_gather_linear/shard_tiles.h"
#include "fused/tile_channel.h"

namespace heddle {

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

// Alg. 2 by the blocks that multiply: each sends some parts of tiles to every other rank. Rows must be whole, aligned
// vectors of 16 bytes, as those that TMA loads are.
struct PushParts {
  OwnShard shard;
  int parts = 0;  // of a tile, by a group each; 0: others send it

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const ShardTiles& tiles,
                                     const TileSlots& slots) const {
    const std::size_t row_bytes = tiles.row_bytes(peers.rank);
    for (int at = group.block(); at < tiles.tiles(peers.rank) * parts; at += group.blocks()) {
      const int tile = at / parts;
      const auto rows = static_cast<std::uint64_t>(tiles.rows(peers.rank, tile)),
                 of = static_cast<std::uint64_t>(parts), part = static_cast<std::uint64_t>(at % parts);
      const std::uint64_t begin = begin_of_part(rows, part, of), end = begin_of_part(rows, part + 1, of);
      const std::byte* const from =
          shard.data + static_cast<std::size_t>(tiles.first_row(tile)) * shard.row_stride_bytes;
      for (int step = 1; step < peers.size; ++step) {
        const int to = (peers.rank + peers.size - step) % peers.size;
        if (!await_credit(group, peers, to, slots.channel, tile, "push: credit")) return;
        std::byte* const there = peers.at(to, slots.arriving(peers.rank, tile));
        for (std::uint64_t row = begin; row < end; ++row)
          copy_vectors(group, reinterpret_cast<Vector16*>(there + row * row_bytes),
                       reinterpret_cast<const Vector16*>(from + row * shard.row_stride_bytes),
                       row_bytes / sizeof(Vector16));
        fill_part(group, peers, to, slots.channel, tile, of);
      }
    }
  }
};

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
