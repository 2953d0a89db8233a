// The producers of produce.cuh by bulk copies: a thread per block takes pieces of a tile through shared memory, so that
// few SMs fill a link and the GEMM has the others. Loads run ahead of stores; a tile is made known once its stores have
// been written, while the next tile's are on their way.
#include "fused/all_gather_linear/send_tiles_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/alignment.h"
#include "device/bulk_stores_sm90.cuh"
#include "device/channel_calls.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "fused/all_gather_linear/produce.cuh"

namespace heddle {
namespace {

constexpr char kSend[] = "all_gather_linear: transfer";
constexpr int kBuffers = 12, kAhead = 6;  // pieces: in shared memory; loads before the first store
constexpr std::uint32_t kPieceBytes = 16 << 10;
constexpr unsigned kSenderThreads = 32;

struct SendShared {
  std::byte buffers[kBuffers][kPieceBytes];
  sm90::Mbarrier full[kBuffers];
};

// A tile in pieces: of its bytes where rows are contiguous, else of each row.
struct TilePieces {
  const std::byte* from;
  std::byte* to;
  std::size_t run_bytes, stride_bytes;  // of a run of contiguous bytes, and from one to the next
  int pieces_of_run, count;

  struct Piece {
    const std::byte* from;
    std::byte* to;
    std::uint32_t bytes;
  };
  __device__ Piece at(int index) const {
    const auto run = static_cast<std::size_t>(index / pieces_of_run),
               first = static_cast<std::size_t>(index % pieces_of_run) * kPieceBytes, left = run_bytes - first;
    return {.from = from + run * stride_bytes + first,
            .to = to + run * run_bytes + first,
            .bytes = left < kPieceBytes ? static_cast<std::uint32_t>(left) : kPieceBytes};
  }
};

// What one thread moves. Its steps are counted over all tiles, because buffers and barriers go on from tile to tile.
class PieceMover {
 public:
  __device__ PieceMover(SendShared& shared, const KernelWaits& waits) : shared_(shared), waits_(waits) {}

  // Calls `earlier_written` once all tiles before this one have been written.
  template <class F>
  __device__ void move(const TilePieces& tile, F earlier_written) {
    bool told = false;
    for (int i = 0; i < tile.count + kAhead; ++i) {
      if (i < tile.count) load(tile.at(i));
      if (i < kAhead) continue;
      store(tile.at(i - kAhead));
      if (i - kAhead + 1 != kAhead) continue;
      sm90::wait_for_stores<kAhead>();  // those that may be on their way are this tile's
      earlier_written();
      told = true;
    }
    if (told) return;
    sm90::wait_for_stores();
    earlier_written();
  }

 private:
  __device__ void load(const TilePieces::Piece& piece) {
    const int buffer = static_cast<int>(loads_ % kBuffers);
    sm90::wait_until_stores_have_read<kBuffers - kAhead - 1>();  // the one of this buffer has
    shared_.full[buffer].arrive_expecting(piece.bytes);
    sm90::copy_bytes(sm90::shared_address(shared_.buffers[buffer]), piece.from, piece.bytes,
                     shared_.full[buffer].address());
    ++loads_;
  }
  __device__ void store(const TilePieces::Piece& piece) {
    const int buffer = static_cast<int>(stores_ % kBuffers);
    static_cast<void>(shared_.full[buffer].wait(waits_, static_cast<int>(stores_ / kBuffers % 2)));
    sm90::store_bytes(piece.to, sm90::shared_address(shared_.buffers[buffer]), piece.bytes);
    sm90::commit_stores();
    ++stores_;
  }

  SendShared& shared_;
  const KernelWaits& waits_;
  std::uint32_t loads_ = 0, stores_ = 0;
};

// The jobs of a block: push sends a tile to one rank, and fills its slot there; an offered tile goes to this rank's
// outbox, and the slots of all other ranks are filled.
struct SendTiles {
  ShardTiles tiles;
  OwnShard shard;
  TileSlots slots;
  Peers peers;
  bool offers;

  __device__ int count() const { return tiles.tiles(peers.rank) * (offers ? 1 : peers.size - 1); }
  __device__ int tile(int job) const { return job % tiles.tiles(peers.rank); }
  // Ranks are served in the order in which they take this rank's tiles, as in PushShard.
  __device__ int receiver(int job) const {
    return (peers.rank + peers.size - 1 - job / tiles.tiles(peers.rank)) % peers.size;
  }

  template <class F>
  __device__ void each_receiver(int job, F f) const {
    if (!offers) return f(receiver(job));
    for (int step = 1; step < peers.size; ++step) f((peers.rank + step) % peers.size);
  }

  __device__ TilePieces pieces(int job) const {
    const std::int64_t rows = tiles.rows(peers.rank, tile(job));
    const std::size_t row_bytes = tiles.row_bytes(peers.rank);
    const bool packed = row_bytes == shard.row_stride_bytes;
    const std::size_t run_bytes = packed ? row_bytes * static_cast<std::size_t>(rows) : row_bytes;
    const auto pieces_of_run = static_cast<int>((run_bytes + kPieceBytes - 1) / kPieceBytes);
    return {.from = shard.data + static_cast<std::size_t>(tiles.first_row(tile(job))) * shard.row_stride_bytes,
            .to = offers ? slots.offered(tile(job)) : peers.at(receiver(job), slots.arriving(peers.rank, tile(job))),
            .run_bytes = run_bytes,
            .stride_bytes = shard.row_stride_bytes,
            .pieces_of_run = pieces_of_run,
            .count = packed ? pieces_of_run : pieces_of_run * static_cast<int>(rows)};
  }

  __device__ void run(SendShared& shared, const KernelWaits& waits) const {
    const DeviceThread thread;
    PieceMover mover(shared, waits);
    int written = -1;  // the job before
    const auto tell = [&] {
      if (written >= 0) each_receiver(written, [&](int to) { fill(thread, peers, to, slots.channel, tile(written)); });
    };
    for (int job = static_cast<int>(blockIdx.x); job < count(); job += static_cast<int>(gridDim.x)) {
      bool free = true;
      each_receiver(job, [&](int to) {
        free = free && claim(thread, peers, to, slots.channel, tile(job), offers ? "pull: credit" : "push: credit");
      });
      if (!free) break;  // it is in the record
      mover.move(pieces(job), tell);
      written = job;
    }
    sm90::wait_for_stores();
    tell();
  }
};

__global__ void __launch_bounds__(kSenderThreads)
    send_tiles(const __grid_constant__ SendTiles send, const __grid_constant__ KernelWaits waits) {
  extern __shared__ std::byte memory[];
  auto& shared = *reinterpret_cast<SendShared*>(memory);
  if (threadIdx.x != 0) return;
  for (sm90::Mbarrier& barrier : shared.full) barrier.init(1);
  sm90::publish_barriers();
  send.run(shared, waits);
}

}  // namespace

bool is_for_bulk_copies(const GatherCall& call) {
  const Tensor& x = call.params.x;
  return is_aligned(x.data) && static_cast<std::size_t>(x.row_stride) * size_of(x.dtype) % kVectorBytes == 0 &&
         call.tiles.row_bytes(call.peers.rank) % kVectorBytes == 0;
}

void send_tiles_sm90(const GatherCall& call, int sms, Stream& transfers) {
  const Tensor& x = call.params.x;
  const bool offers = call.params.variant == GatherVariant::pull;
  const int tiles = call.tiles.tiles(call.peers.rank), jobs = tiles * (offers ? 1 : call.peers.size - 1);
  // In pairs, side by side, so that the GEMM's clusters find pairs of SMs.
  const bool in_pairs = call.alone && sms % 2 == 0;
  launch_sm90(
      kSend, send_tiles,
      {.grid = dim3(static_cast<unsigned>(in_pairs ? std::min(sms, jobs + jobs % 2) : std::min(sms, jobs))),
       .block = dim3(kSenderThreads),
       .shared_bytes = sizeof(SendShared),
       .cluster = in_pairs ? 2U : 1U,
       .programmatic = false},
      transfers,
      SendTiles{call.tiles,
                {static_cast<const std::byte*>(x.data), static_cast<std::size_t>(x.row_stride) * size_of(x.dtype)},
                call.slots,
                call.peers,
                offers},
      KernelWaits{.limit = call.peers.waits, .tag = "gather: send"});
}

}  // namespace heddle
