// all_gather_linear on a GPU, without CUDA's headers. all_gather_linear.h has what it does; its arguments are checked
// there. Defined only in builds with CUDA.
#pragma once

#include "base/lane.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/all_gather_linear/shard_tiles.h"
#include "fused/packet_inbox.h"
#include "fused/tile_channel.h"

namespace heddle {

// Tiles of C of which the GEMM has a choice where a shard has more than 64 rows. Those of clusters can be taken where no
// other lane or rank has SMs of the device.
struct GatherTile {
  int rows, columns, cluster;
  // Time of a round of tiles, relative to the largest one's; measured (docs/notes/fused.md). Those of clusters follow the bytes
  // that L2 gives a block for a step of k, 16 + columns / 16 KiB.
  double round;
};
inline constexpr GatherTile kGatherTiles[] = {
    {128, 256, 2, 1.00}, {128, 224, 2, 0.95}, {128, 192, 2, 0.88}, {128, 128, 1, 0.81}, {128, 64, 1, 0.68}};

// What the kernels of a call read.
struct GatherCall {
  ShardTiles tiles;
  TileSlots slots;
  PacketMemory inbox;
  Peers peers;
  AllGatherLinearParams params;
  bool alone = false;  // on the device: no other lane or rank has SMs of it
};

inline OwnShard shard_of(const GatherCall& call) {
  const Tensor& x = call.params.x;
  return {static_cast<const std::byte*>(x.data), static_cast<std::size_t>(x.row_stride) * size_of(x.dtype)};
}

// The most rows of A that push and pull gather before the GEMM, since its tiles are too few to hide a transfer. Where 512 rows
// are sharded, those of each of two ranks would take all SMs by themselves, and W would come from memory for each.
constexpr std::int64_t gather_first_rows(bool of_rows) {
  return of_rows ? 512 : 256;
}

// Of push and pull, of at most gather_first_rows(): gathers A into `whole`, where it is packed, and multiplies, on the lane
// alone. Push goes by packets, which win over slots with flags up to 8 MiB of A (collectives/algorithm.cpp): all of 256 rows
// to K = 16384, of 512 to 8192; beyond that nobody has measured.
bool is_for_small_m(const GatherCall& call);
void gather_small_m_sm90(const GatherCall& call, void* whole, const Lane& lane);

// Whether the GEMM itself sends this rank's shard.
bool sends_while_multiplying(const GatherCall& call);

// The producer of pull, or of push where the GEMM does not send, on `sms` SMs, a block each.
void enqueue_shard_sm90(const GatherCall& call, int sms, Stream& transfers);

// Of copy, for tiles [first, first + count) of this rank's shard at all other ranks: waits for the credit of each, and
// fills their slots.
void claim_tiles_sm90(const GatherCall& call, int first, int count, Stream& transfers);
void fill_tiles_sm90(const GatherCall& call, int first, int count, Stream& transfers);

// The GEMM, which waits for each tile by itself, on the SMs of the lane.
void gathered_linear_sm90(const GatherCall& call, const Lane& lane);

}  // namespace heddle
