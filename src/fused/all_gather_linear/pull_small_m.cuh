// The pull of an all-gather of few rows: each rank offers its shard, and the others load it to its place in A.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/channel_calls.h"
#include "device/vector_copy.h"
#include "fused/all_gather_linear/produce.cuh"
#include "fused/all_gather_linear/shard_tiles.h"
#include "fused/tile_channel.h"

namespace heddle {

// A shard goes in pieces: some columns of all its rows, so that a piece's rows lie side by side in A, however A is
// sharded. A slot of the channel carries a piece.
struct ShardPieces {
  static constexpr int kMost = 32;

  ShardTiles tiles;

  // Whole vectors of 16 bytes: columns(rank) is a multiple of those.
  HEDDLE_HOST_DEVICE std::int64_t vectors(int rank) const {
    return static_cast<std::int64_t>(tiles.row_bytes(rank) / sizeof(Vector16));
  }
  HEDDLE_HOST_DEVICE std::int64_t vectors_of_piece(int rank) const { return (vectors(rank) + kMost - 1) / kMost; }
  HEDDLE_HOST_DEVICE int count(int rank) const {
    if (tiles.tiles(rank) == 0) return 0;
    const std::int64_t each = vectors_of_piece(rank);
    return static_cast<int>((vectors(rank) + each - 1) / each);
  }
  HEDDLE_HOST_DEVICE int vectors(int rank, int piece) const {
    const std::int64_t each = vectors_of_piece(rank), left = vectors(rank) - piece * each;
    return static_cast<int>(left < each ? left : each);
  }
  HEDDLE_HOST_DEVICE std::size_t first_byte(int rank, int piece) const {
    return static_cast<std::size_t>(piece * vectors_of_piece(rank)) * sizeof(Vector16);
  }
  // Of a piece in its slot, where its rows are packed.
  std::size_t largest_bytes() const {
    std::int64_t most = 0;
    for (int rank = 0; rank < tiles.shards.ranks; ++rank)
      most = std::max(most, tiles.shard_rows(rank) * vectors_of_piece(rank));
    return static_cast<std::size_t>(most) * sizeof(Vector16);
  }
};

// Rows some bytes apart.
struct StridedRows {
  std::byte* data;
  std::size_t stride_bytes;

  template <class Word>
  HEDDLE_HOST_DEVICE Word* at(int row, int word) const {
    return reinterpret_cast<Word*>(data + static_cast<std::size_t>(row) * stride_bytes) + word;
  }
};

// `rows` rows of `words` words each, which the group's lanes share; no lane may rely on another's part before
// group.sync().
template <class Word, Group G>
HEDDLE_HOST_DEVICE void copy_rows(const G& group, const StridedRows& to, const StridedRows& from, int rows, int words) {
  constexpr int kInFlight = 4;  // loads of a lane, to hide the latency of peer memory
  const int count = rows * words;
  for (int first = group.lane(); first < count; first += kInFlight * group.lanes()) {
    Word taken[kInFlight];
    for (int i = 0; i < kInFlight; ++i)
      if (const int at = first + i * group.lanes(); at < count) taken[i] = *from.at<Word>(at / words, at % words);
    for (int i = 0; i < kInFlight; ++i)
      if (const int at = first + i * group.lanes(); at < count) *to.at<Word>(at / words, at % words) = taken[i];
  }
}

// Each piece goes into this rank's outbox, from where the others load it once they are told. (Push needs no telling:
// push_small_m.cuh.) A group waits for the same pieces of other ranks that it has offered itself, so groups need not run
// at once.
struct PullSmallM {
  ShardPieces pieces;
  OwnShard shard;
  TileSlots slots;
  std::byte* whole;  // A, [M, K], packed
  bool aligned;      // the shard's rows, to vectors

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE bool offer(const G& group, const P& peers, int piece) const {
    const auto rows = static_cast<int>(pieces.tiles.shard_rows(peers.rank));
    const int vectors = pieces.vectors(peers.rank, piece);
    const StridedRows mine{const_cast<std::byte*>(shard.data) + pieces.first_byte(peers.rank, piece),  // only read
                           shard.row_stride_bytes};
    const auto copy_mine = [&](const StridedRows& to) {
      if (aligned) return copy_rows<Vector16>(group, to, mine, rows, vectors);
      constexpr int kWords = sizeof(Vector16) / sizeof(std::uint16_t);
      copy_rows<std::uint16_t>(group, to, mine, rows, vectors * kWords);
    };
    for (int step = 1; step < peers.size; ++step)
      if (!claim(group, peers, (peers.rank + step) % peers.size, slots.channel, piece, "small M: credit")) return false;
    copy_mine({slots.offered(piece), static_cast<std::size_t>(vectors) * sizeof(Vector16)});
    for (int step = 1; step < peers.size; ++step)
      fill(group, peers, (peers.rank + step) % peers.size, slots.channel, piece);
    copy_mine(place(peers.rank, piece));
    return true;
  }

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE bool take(const G& group, const P& peers, int owner, int piece) const {
    if (!await_full(group, peers, owner, slots.channel, piece, "small M: piece")) return false;
    const int vectors = pieces.vectors(owner, piece);
    copy_rows<Vector16>(group, place(owner, piece),
                        {peers.at(owner, slots.offered(piece)), static_cast<std::size_t>(vectors) * sizeof(Vector16)},
                        static_cast<int>(pieces.tiles.shard_rows(owner)), vectors);
    give_back(group, peers, owner, slots.channel, piece, 1);
    return true;
  }

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    for (int piece = group.block(); piece < ShardPieces::kMost; piece += group.blocks()) {
      if (piece < pieces.count(peers.rank) && !offer(group, peers, piece)) return;
      for (int step = 1; step < peers.size; ++step) {
        const int owner = (peers.rank + step) % peers.size;
        if (piece < pieces.count(owner) && !take(group, peers, owner, piece)) return;
      }
    }
  }

 private:
  // In A.
  HEDDLE_HOST_DEVICE StridedRows place(int owner, int piece) const {
    const ShardTiles& tiles = pieces.tiles;
    const auto begin = static_cast<std::size_t>(tiles.shards.begin(owner));
    const std::size_t row_bytes =
        static_cast<std::size_t>(tiles.of_rows ? tiles.other : tiles.shards.total()) * tiles.element_bytes;
    return {whole + begin * (tiles.of_rows ? row_bytes : tiles.element_bytes) + pieces.first_byte(owner, piece),
            row_bytes};
  }
};

}  // namespace heddle
