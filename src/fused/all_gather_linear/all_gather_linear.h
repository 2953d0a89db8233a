// y = A W^T + bias, where each rank of a team holds a shard of A and its own W: an all-gather and a GEMM that do not wait
// for each other as a whole ("Eliminating Multi-GPU Performance Taxes", section 4.1). A is sharded
//   - on M (rows): rank r has rows of A, as layers after a sequence-parallel norm need;
//   - on K (columns): rank r has columns of A, as in the paper.
//
// The unit of transfer is a tile: up to tile_rows rows of one rank's shard. Ranks take tiles in the order of
// schedule/tile_order.h, the local shard first. Three variants give the same bits:
//   pull  (Alg. 1)     each rank offers its tiles in symmetric memory, and the GEMM's loads reach for them there
//   push  (Alg. 2, 3)  a producer pushes tiles into the other ranks' inboxes and raises a slot of a channel for each;
//                      the GEMM waits per tile and loads from its own inbox
//   copy               as push, by the stream's copies (on a GPU: copy engines), and a GEMM for each tile behind them
//
// On a GPU one persistent GEMM serves all variants: its loads wait for the tiles that they need, and only the address
// from which they load differs. By push its own blocks send this rank's shard while they multiply. Up to 256 rows of A, or
// 512 where A is sharded on M, a kernel gathers them by push (in packets that carry their own arrival) or pull, beside which the
// GEMM of kernels/linear begins to load W (gather_small_m_sm90.cu); the first call of more than 64 rows then loads
// cuBLASLt, so it comes before a graph capture. It takes x and W of one 16-bit dtype in rows that are aligned to 16 bytes;
// anything else runs in a plain kernel. On the CPU y has the bits of `linear` over the whole A: a tile of rows is
// multiplied in one call, over K sharded ranks when all its parts are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/buffer.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "fabric/fabric.h"
#include "fused/packet_inbox.h"
#include "fused/shards.h"
#include "fused/tile_channel.h"

namespace heddle {

enum class Sharded : std::uint8_t {
  rows,    // on M
  columns  // on K
};

enum class GatherVariant : std::uint8_t { pull, push, copy };
std::string_view name_of(GatherVariant variant);

// What all calls of one AllGatherLinear keep to.
struct AllGatherLinearLimits {
  Sharded sharded = Sharded::rows;
  std::int64_t largest_shard = 0;  // of any rank: rows or columns of A
  std::int64_t other = 0;          // A's other dimension: K where rows are sharded, the most rows where columns are
  DType dtype = DType::float32;    // of A
  std::int64_t tile_rows = 64;
};

struct AllGatherLinearParams {
  Shards shards;  // of M or of K; the same on every rank, shards of any length up to the limit
  Tensor x;       // this rank's shard, of the limits' dtype: [shards.count(rank), K] or [M, shards.count(rank)]; any
                  // memory; may be null if it is empty
  Weight weight;  // [n, K]; n may differ between ranks
  Tensor y;       // [M, n], as `linear` takes it; does not overlap x
  GatherVariant variant = GatherVariant::push;
  int transfer_sms = 4;  // of the lane, for producers on a GPU (pull; plain kernels); half of the lane at most
  int tile = -1;         // of the GEMM on a GPU: of kGatherTiles (all_gather_linear_sm90.h), if it can be; -1: by shape
};

struct GatherCall;
struct OwnShard;

// One for each rank and team; owns the symmetric memory. The ranks of a team make the same calls in the same order; calls
// follow each other without a barrier, in any variants. It outlives the work that is enqueued on it.
class AllGatherLinear {
 public:
  // Collective over the fabric's world, as TileChannel; every rank gives the same limits. Throws InvalidArgument unless
  // the limits are positive.
  AllGatherLinear(Fabric& fabric, Ranks team, const AllGatherLinearLimits& limits);

  // Bytes of each rank's symmetric heap that it takes while it lives.
  static std::size_t heap_bytes(int world_size, const AllGatherLinearLimits& limits, DeviceKind device);

  // Enqueues the GEMM on the lane and the transfers, where the GEMM does not send, on `transfers`, another stream of the
  // same device. What is enqueued
  // on the lane's stream before comes before both; what is enqueued there later comes after both, so x may be overwritten
  // then. Allocates no tensors. On a GPU the lane's SMs are this rank's alone (Fabric::device_share): blocks that wait for
  // other ranks are resident on all of them. Throws InvalidArgument unless params fit the limits and `linear`. A rank that stops is named
  // by Fabric::synchronize (Timeout); y is then undefined.
  void operator()(const AllGatherLinearParams& params, const Lane& lane, Stream& transfers);

 private:
  void check(const AllGatherLinearParams& params, const Lane& lane, const Stream& transfers) const;
  void enqueue_copies(const GatherCall& call, const OwnShard& shard, Stream& transfers) const;
  void enqueue_transfers(const GatherCall& call, int transfer_sms, Stream& transfers) const;
  GatherCall call_of(const AllGatherLinearParams& params, const Lane& lane) const;
  std::size_t whole_rows_bytes() const;
  bool on_gpu() const { return tiles_.fabric().device().kind == DeviceKind::cuda; }

  AllGatherLinearLimits limits_;
  TileChannel tiles_;
  PacketInbox inbox_;  // on a GPU: of calls of few rows
  Buffer whole_rows_;  // rows with all columns: on the CPU a tile of them where columns are sharded, on a GPU as many
                       // as the GEMMs of few rows take
  Event ready_, sent_;
};

}  // namespace heddle
