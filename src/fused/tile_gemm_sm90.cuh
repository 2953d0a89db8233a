// The persistent GEMM of the fused operators on Hopper: C tile = X tile times W tile transposed, operands of one 16-bit
// dtype, sums in float32 registers. Roles of a block:
//   - the loading thread issues TMA loads along k into a ring of slots;
//   - one or two warpgroups multiply with WGMMA and store. While they store a tile, the ring fills for the next one;
//   - the escort warp says to other ranks what they wait for, so that nobody who multiplies waits for a fence;
//   - two sending warps push this rank's part of X to the others, where the Work does so; or the first of them forwards sums
//     to other ranks while the next tile is multiplied. A Work does one of the two at most.
//
// The blocks of a cluster have the same columns of C and different rows. Each loads a part of W's rows for all of them
// by multicast within the cluster, so L2 is read less: 32 KiB in place of 48 KiB for a step of 128 x 256 x 64 in a
// cluster of two.
//
// What differs between operators is a Work: where X lies and what must have arrived before it is loaded, and where sums
// go. So a GEMM whose loads reach for another rank's tile differs from a local one in its Work alone.
//
//   struct Work {
//     using Item = ...;                     // a tile of C; has `first_w_row`
//     int count() const;                    // items of all clusters
//     // Of the block `rank` of a cluster. Where there are no rows for it, the item has none; it is loaded and multiplied
//     // all the same, because W is shared. Items of a cluster have the same first_w_row and the same steps.
//     Item at(int index, int rank) const;
//     const CUtensorMap& w_map() const;     // boxes of kColumns / kCluster rows and kDepth columns
//     // The loading thread: waits for what the item needs, and calls load(x_bytes, w_column, copy) for each step of k,
//     // where copy(address, barrier) starts the TMA loads of x_bytes to the X part of a slot.
//     template <class Load> void each_step(const Item&, const Load& load) const;
//     int steps(const Item&) const;         // how many calls of load that makes
//     // The sending warps of all blocks; or the Work has none.
//     template <VotingGroup G> void send(const G&) const;
//     // The escort warp, before the sums may be stored and after they are: what was loaded is no longer in use then.
//     void before_store(const Item&) const;
//     void after_store(const Item&) const;
//     // The threads that multiply, each warpgroup with its part of the sums (Part below) and its staging memory; and,
//     // behind the last item, what makes their stores complete.
//     template <std::size_t kBytes> void store(const Item&, const Part&, float (&sums)[kSums], Staging<kBytes>) const;
//     void finish_stores() const;
//     // Of a Work with sums to forward: whether those of an item are, and, in a warp of its own, their way from where store()
//     // has left them. The Work has room for kForwardBuffers items' sums; `buffer` counts through these.
//     static constexpr int kForwardBuffers;
//     bool forwards(const Item&) const;
//     template <class Relay> void forward(const Item&, int buffer, Relay&) const;
//     template <...> void store(const Item&, const Part&, float (&sums)[kSums], Staging<kBytes>, int buffer) const;
//   };
//
// Waits that give up leave the loops as long as they are (device/wait_deadline_sm90.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "device/bulk_stores_sm90.cuh"
#include "device/group.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle::tile_gemm {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroupRows = 64;      // of one WGMMA
inline constexpr int kDepth = 64;          // of a step: a line of 128 bytes
inline constexpr std::size_t kAlignment = 1024, kMostSharedBytes = std::size_t{227} << 10, kBarrierBytes = 512;

// Memory of a warpgroup between its sums and those of y.
template <std::size_t kSize>
struct Staging {
  static constexpr std::size_t kBytes = kSize;
  std::byte* memory;
};

// A tile of C, and how many blocks of a cluster share W. One warpgroup multiplies 64 x 64; two divide a larger tile by
// rows, or by columns where it has 64 rows. A relay takes its bytes from the ring.
template <int kTileRows, int kTileColumns, int kClusterBlocks = 1, std::size_t kStaging = std::size_t{16} << 10,
          std::size_t kRelay = 0>
struct Shape {
  static constexpr int kRows = kTileRows, kColumns = kTileColumns, kCluster = kClusterBlocks;
  static constexpr std::size_t kStagingBytes = kStaging, kRelayBytes = kRelay;
  static constexpr int kGroups = kRows * kColumns == 64 * 64 ? 1 : 2;
  static constexpr int kRowGroups = kRows / kGroupRows, kColumnGroups = kGroups / kRowGroups;
  static constexpr int kGroupColumns = kColumns / kColumnGroups;
  static constexpr int kSums = kGroupRows * kGroupColumns / kGroupThreads;  // per thread
  static constexpr int kThreads = kGroupThreads * (kGroups + 1);
  static constexpr int kMultipliers = kGroupThreads * kGroups;
  static constexpr int kWBoxRows = kColumns / kCluster;  // that a block loads
  using X = sm90::Tile<kRows, kDepth>;
  using W = sm90::Tile<kColumns, kDepth>;
  struct Step {
    std::byte x[X::kBytes];
    std::byte w[W::kBytes];
  };
  static constexpr std::size_t kRingBytes = kMostSharedBytes - kAlignment - kBarrierBytes - kGroups * kStaging - kRelay;
  static constexpr int kMostSlots = 12;
  static constexpr int kSlots = kRingBytes / sizeof(Step) < kMostSlots ? kRingBytes / sizeof(Step) : kMostSlots;
  static_assert(kRowGroups * kColumnGroups == kGroups && kSlots >= 3);
  static_assert(X::kBytes % kAlignment == 0 && W::kBytes / kCluster % kAlignment == 0);
};

// The rows and columns of a tile of which a thread of a warpgroup has sums: rows row() and row() + 8; of each the columns
// column(i) and the next, for every eight columns i. They are sums[4 * i], sums[4 * i + 1], and [4 * i + 2], [4 * i + 3].
struct Part {
  int group;                    // of the block's warpgroups that multiply
  int first_row, first_column;  // of the warpgroup

  static __device__ int thread() { return static_cast<int>(threadIdx.x) % kGroupThreads; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return thread() / 32; }
  __device__ int row() const { return first_row + warp() * 16 + lane() / 4; }
  __device__ int column(int i) const { return first_column + i * 8 + lane() % 4 * 2; }

  // The threads of the warpgroup meet.
  __device__ void sync() const {
    constexpr int kFirstBarrier = 2;
    sm90::sync_threads(kFirstBarrier + group, kGroupThreads);
  }
};

// Shared memory through which one thread's TMA copies bytes from this GPU's memory to other places, a peer's among them: chunk
// after chunk, with loads in flight while earlier chunks are stored.
template <std::size_t kBytes>
class Relay {
 public:
  static constexpr int kChunks = 4;
  static constexpr std::uint32_t kChunkBytes = kBytes / kChunks;

  struct Memory {
    alignas(128) std::byte chunks[kChunks][kChunkBytes];
    sm90::Mbarrier full[kChunks];  // of one arrival
  };

  __device__ Relay(Memory& memory, const KernelWaits& waits) : memory_(memory), waits_(waits) {}

  // `bytes` at `from`, a multiple of 16, to each place that to(f) calls f(place) with; the async proxy may read them
  // (fence_async_proxy_of_all_memory). The copies may be under way when it returns.
  template <class To>
  __device__ void copy(const std::byte* from, std::uint32_t bytes, const To& to) {
    const int count = static_cast<int>((bytes + kChunkBytes - 1) / kChunkBytes);
    const auto size = [&](int i) {
      const std::uint32_t left = bytes - static_cast<std::uint32_t>(i) * kChunkBytes;
      return left < kChunkBytes ? left : kChunkBytes;
    };
    const auto load = [&](int i) {  // to a chunk from which no store reads any more
      const int at = (next_ + i) % kChunks;
      memory_.full[at].arrive_expecting(size(i));
      sm90::copy_bytes(sm90::shared_address(memory_.chunks[at]), from + static_cast<std::size_t>(i) * kChunkBytes,
                       size(i), memory_.full[at].address());
    };
    sm90::wait_until_stores_have_read();
    for (int i = 0; i < kChunks - 1 && i < count; ++i) load(i);
    for (int i = 0; i < count; ++i) {
      const int at = (next_ + i) % kChunks;
      memory_.full[at].template wait<sm90::LongWaitDeadline>(waits_, parities_ >> at & 1);
      parities_ ^= 1 << at;
      to([&](std::byte* place) {
        sm90::store_bytes(place + static_cast<std::size_t>(i) * kChunkBytes, sm90::shared_address(memory_.chunks[at]),
                          size(i));
      });
      sm90::commit_stores();
      if (i + kChunks - 1 >= count) continue;
      sm90::wait_until_stores_have_read<1>();
      load(i + kChunks - 1);
    }
    next_ = (next_ + count) % kChunks;
  }

  // Every place has what was copied, as if this thread had written it.
  __device__ void finish() const {
    sm90::wait_for_stores();
    sm90::fence_async_proxy_of_all_memory();
  }

 private:
  Memory& memory_;
  const KernelWaits& waits_;
  int next_ = 0;
  int parities_ = 0;
};

template <>
class Relay<0> {
 public:
  struct Memory {};
};

inline constexpr int kMostForwardBuffers = 2;

// Which buffer has an item's sums, and the phase of its barriers.
struct ForwardTurn {
  int buffer;
  int parity;
  bool again;  // the buffer has had sums of an earlier item
};
template <int kBuffers>
class ForwardTurns {
  static_assert(kBuffers >= 1 && kBuffers <= kMostForwardBuffers);

 public:
  __device__ ForwardTurn next() {
    const ForwardTurn turn{count_ % kBuffers, count_ / kBuffers & 1, count_ >= kBuffers};
    ++count_;
    return turn;
  }

 private:
  int count_ = 0;
};

template <class Shape>
struct Shared {
  typename Shape::Step slots[Shape::kSlots];
  std::byte staging[Shape::kGroups][Shape::kStagingBytes];
  typename Relay<Shape::kRelayBytes>::Memory relay;
  TmaRing<sm90::Mbarrier, Shape::kSlots> ring;
  sm90::Mbarrier may_store, stored;  // of the escort, of the threads that multiply; a phase for each item
  sm90::Mbarrier to_forward[kMostForwardBuffers],
      forwarded[kMostForwardBuffers];  // a phase for each item that a buffer has
};
template <class Shape>
constexpr std::size_t shared_bytes() {
  static_assert(sizeof(Shared<Shape>) + kAlignment <= kMostSharedBytes);
  return sizeof(Shared<Shape>) + kAlignment;
}

template <class Shape>
__device__ int rank_of_block() {
  return static_cast<int>(blockIdx.x) % Shape::kCluster;
}

// All roles of a block go through the items, and the steps of each, in this order.
template <class Shape, class Work, class F>
__device__ void each_item(const Work& work, F f) {
  const int clusters = static_cast<int>(gridDim.x) / Shape::kCluster;
  for (int index = static_cast<int>(blockIdx.x) / Shape::kCluster; index < work.count(); index += clusters)
    f(work.at(index, rank_of_block<Shape>()));
}

// One thread. Other warps of the cluster may wait for other ranks, hence the long deadline of all roles.
template <class Shape, class Work>
__device__ void load_steps(const Work& work, Shared<Shape>& shared, const KernelWaits& waits) {
  constexpr std::uint16_t kAll = (1U << Shape::kCluster) - 1;
  const int first_row = rank_of_block<Shape>() * Shape::kWBoxRows;  // of W's tile
  RingProducer<Shape::kSlots> at;
  each_item<Shape>(work, [&](const typename Work::Item& item) {
    work.each_step(item, [&](std::uint32_t x_bytes, int w_column, auto copy) {
      auto& step = shared.slots[at.slot()];
      const std::uint32_t full = shared.ring.full(at).address();
      shared.ring.template wait_until_empty<sm90::LongWaitDeadline>(at, waits);
      shared.ring.full(at).arrive_expecting(x_bytes + static_cast<std::uint32_t>(sizeof step.w));
      copy(sm90::shared_address(step.x), full);
      const std::uint32_t w =
          sm90::shared_address(step.w) + static_cast<std::uint32_t>(first_row * Shape::W::kRowBytes);
      if constexpr (Shape::kCluster == 1)
        sm90::copy_box(w, work.w_map(), w_column, item.first_w_row, full);
      else
        sm90::copy_box_to_blocks(w, work.w_map(), w_column, item.first_w_row + first_row, full, kAll);
      at.advance();
    });
  });
  // A block ends when no other one writes its slots or arrives at its barriers any more.
  if constexpr (Shape::kCluster > 1) shared.ring.template wait_until_all_empty<sm90::LongWaitDeadline>(at, waits);
}

// A warp.
template <class Shape, class Work>
__device__ void escort(const Work& work, Shared<Shape>& shared, const KernelWaits& waits) {
  int parity = 0;
  each_item<Shape>(work, [&](const typename Work::Item& item) {
    work.before_store(item);
    __syncwarp();
    if (Part::lane() == 0) shared.may_store.arrive();
    shared.stored.template wait<sm90::LongWaitDeadline>(waits, parity);
    work.after_store(item);
    parity ^= 1;
  });
}

template <class Work>
concept Forwards = requires(const Work& work, const typename Work::Item& item) {
  work.forwards(item);
};

template <class Work>
constexpr int buffers_of() {
  if constexpr (Forwards<Work>)
    return Work::kForwardBuffers;
  else
    return 1;
}

// A warp.
template <class Shape, Forwards Work>
__device__ void forward(const Work& work, Shared<Shape>& shared, const KernelWaits& waits) {
  ForwardTurns<Work::kForwardBuffers> turns;
  Relay<Shape::kRelayBytes> relay(shared.relay, waits);
  each_item<Shape>(work, [&](const typename Work::Item& item) {
    if (!work.forwards(item)) return;
    const ForwardTurn turn = turns.next();
    shared.to_forward[turn.buffer].template wait<sm90::LongWaitDeadline>(waits, turn.parity);
    work.forward(item, turn.buffer, relay);
    __syncwarp();
    if (Part::lane() == 0) shared.forwarded[turn.buffer].arrive();
  });
}

// The last two warps of the first warpgroup.
inline constexpr int kFirstSender = 2;

template <class Work>
__device__ void send(const Work& work) {
  constexpr int kBarrier = 4;  // behind those of warpgroups
  const DeviceWarps senders(kFirstSender, kGroupThreads / 32 - kFirstSender, kBarrier);
  if constexpr (requires { work.send(senders); }) work.send(senders);
}

// A warpgroup's part of all tiles of this block.
template <class T, class Shape, class Work>
class Multiplier {
 public:
  __device__ Multiplier(const Work& work, Shared<Shape>& shared, int group, const KernelWaits& waits)
      : work_(work),
        shared_(shared),
        waits_(waits),
        part_{.group = group,
              .first_row = group % Shape::kRowGroups * kGroupRows,
              .first_column = group / Shape::kRowGroups * Shape::kGroupColumns} {}

  __device__ void run() {
    int parity = 0;
    each_item<Shape>(work_, [&](const typename Work::Item& item) {
      multiply(work_.steps(item));
      shared_.may_store.template wait<sm90::LongWaitDeadline>(waits_, parity);
      store(item);
      shared_.stored.arrive();
      parity ^= 1;
    });
    work_.finish_stores();
  }

 private:
  using X = typename Shape::X;
  using W = typename Shape::W;

  __device__ void store(const typename Work::Item& item) {
    const Staging<Shape::kStagingBytes> staging{shared_.staging[part_.group]};
    if constexpr (Forwards<Work>) {
      const bool forwards = work_.forwards(item);
      const ForwardTurn turn = forwards ? turns_.next() : ForwardTurn{};
      if (turn.again) shared_.forwarded[turn.buffer].template wait<sm90::LongWaitDeadline>(waits_, turn.parity ^ 1);
      work_.store(item, part_, sums_, staging, turn.buffer);
      if (forwards) shared_.to_forward[turn.buffer].arrive();
    } else {
      work_.store(item, part_, sums_, staging);
    }
  }

  // A slot is released when its WGMMAs have ended; they end while those of the next slot are in flight.
  __device__ void multiply(int steps) {
    std::uint32_t last_empty = 0;
    for (int k = 0; k < steps; ++k, at_.advance()) {
      shared_.ring.template wait_until_full<sm90::LongWaitDeadline>(at_, waits_);
      auto& step = shared_.slots[at_.slot()];
      const std::uint64_t x = sm90::matrix_descriptor<X::kRowBytes>(
                              sm90::shared_address(step.x) + static_cast<std::uint32_t>(part_.first_row * X::kRowBytes),
                              8 * X::kRowBytes, 0),
                          w = sm90::matrix_descriptor<W::kRowBytes>(
                              sm90::shared_address(step.w) +
                                  static_cast<std::uint32_t>(part_.first_column * W::kRowBytes),
                              8 * W::kRowBytes, 0);
      constexpr int kFeatures = 16;  // per instruction, two bytes each
      sm90::pin(sums_);
      sm90::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kDepth; i += kFeatures)
        sm90::wgmma_ss<T>(sums_, sm90::advanced(x, 2 * i), sm90::advanced(w, 2 * i), k > 0 || i > 0);
      sm90::wgmma_commit();
      if (k > 0) {
        sm90::wgmma_wait<1>();
        release(last_empty);
      }
      last_empty = shared_.ring.empty(at_).address();
    }
    sm90::wgmma_wait<0>();
    sm90::pin(sums_);
    if (steps > 0) release(last_empty);
  }

  // To all blocks that copy into the slot. Each warp arrives for itself.
  __device__ void release(std::uint32_t empty) const {
    __syncwarp();
    if (Part::lane() < Shape::kCluster) sm90::arrive_in_block(sm90::address_in_block(empty, Part::lane()));
  }

  const Work& work_;
  Shared<Shape>& shared_;
  const KernelWaits& waits_;
  const Part part_;
  ForwardTurns<buffers_of<Work>()> turns_;
  RingConsumer<Shape::kSlots> at_;
  float sums_[Shape::kSums];
};

// The whole block, of Shape::kThreads threads and shared_bytes<Shape>() of dynamic shared memory, in a cluster of
// Shape::kCluster blocks. When it returns, the threads that multiply have stored all their tiles; those of warpgroup 0
// return after the last load, or the last item's after_store(). Returns whether this thread is one that multiplies.
template <class T, class Shape, class Work>
__device__ bool run(const Work& work, const KernelWaits& waits) {
  extern __shared__ std::byte memory[];
  const std::uint32_t misaligned = sm90::shared_address(memory) % kAlignment;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<Shared<Shape>*>(memory + (misaligned == 0 ? 0 : kAlignment - misaligned));
  if (threadIdx.x == 0) {
    constexpr int kWarps = Shape::kMultipliers / 32;
    shared.ring.init({.producers = 1, .consumers = kWarps * Shape::kCluster});
    shared.may_store.init(1);
    shared.stored.init(Shape::kMultipliers);
    for (auto& to_forward : shared.to_forward) to_forward.init(Shape::kMultipliers);
    for (auto& forwarded : shared.forwarded) forwarded.init(1);
    if constexpr (Shape::kRelayBytes > 0)
      for (auto& full : shared.relay.full) full.init(1);
    sm90::publish_barriers();
    sm90::prefetch_map(work.w_map());
  }
  if constexpr (Shape::kCluster > 1)
    sm90::meet_cluster();
  else
    __syncthreads();
  wait_for_earlier_kernels();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  constexpr int kGroupWarps = kGroupThreads / 32;
  constexpr bool kManySums = Shape::kSums >= 96;  // more registers than an even division gives
  if (warp < kGroupWarps) {
    if constexpr (kManySums) sm90::give_up_registers<56>();
    if (threadIdx.x == 0)
      load_steps<Shape>(work, shared, waits);
    else if (warp == 1)
      escort<Shape>(work, shared, waits);
    else if constexpr (Forwards<Work>) {
      static_assert(!requires { work.send(DeviceWarp{}); });
      if (warp == kFirstSender) forward<Shape>(work, shared, waits);
    } else if (warp >= kFirstSender)
      send(work);
    return false;
  }
  if constexpr (kManySums) sm90::take_registers<224>();
  Multiplier<T, Shape, Work>(work, shared, warp / kGroupWarps - 1, waits).run();
  return true;
}

}  // namespace heddle::tile_gemm
