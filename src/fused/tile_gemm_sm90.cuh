// The persistent GEMM of the fused operators on Hopper: C tile = X tile times W tile transposed, operands of one 16-bit
// dtype, sums in float32 registers. A thread issues TMA loads along k into a ring of slots; one or two warpgroups
// multiply with WGMMA. What differs between operators is a Work: where X lies and what must have arrived before it is
// loaded, and where sums go. So a GEMM whose loads reach for another rank's tile differs from a local one in its Work
// alone.
//
//   struct Work {
//     using Item = ...;                     // a tile of C; has `rows` and `columns` that exist, and `first_w_row`
//     int count() const;                    // items of all blocks
//     Item at(int index) const;
//     const CUtensorMap& w_map() const;     // boxes of kColumns rows and kDepth columns
//     // The loading thread: waits for what the item needs, and calls load(x_bytes, w_column, copy) for each step of k,
//     // where copy(address, barrier) starts the TMA loads of x_bytes to the X part of a slot.
//     template <class Load> void each_step(const Item&, const Load& load) const;
//     int steps(const Item&) const;         // how many calls of load that makes
//     // One thread, when all loads of the item have landed.
//     void loaded(const Item&) const;
//     // All threads that multiply: before and after they store.
//     void begin_store(const Item&) const;
//     void store(const Item&, int row, int column, float first, float second) const;  // columns `column` and the next
//     void end_store(const Item&) const;
//   };
//
// Waits that give up leave the loops as long as they are (device/patience_sm90.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

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
inline constexpr std::size_t kAlignment = 1024, kRingBytes = std::size_t{208} << 10;

// A tile of C. One warpgroup multiplies 64 x 64; two divide a larger tile by rows, or by columns where it has 64 rows.
template <int kTileRows, int kTileColumns>
struct Shape {
  static constexpr int kRows = kTileRows, kColumns = kTileColumns;
  static constexpr int kGroups = kRows * kColumns == 64 * 64 ? 1 : 2;
  static constexpr int kRowGroups = kRows / kGroupRows, kColumnGroups = kGroups / kRowGroups;
  static constexpr int kGroupColumns = kColumns / kColumnGroups;
  static constexpr int kSums = kGroupRows * kGroupColumns / kGroupThreads;  // per thread
  static constexpr int kThreads = kGroupThreads * (kGroups + 1);
  static constexpr int kMultipliers = kGroupThreads * kGroups;
  using X = sm90::Tile<kRows, kDepth>;
  using W = sm90::Tile<kColumns, kDepth>;
  struct Step {
    std::byte x[X::kBytes];
    std::byte w[W::kBytes];
  };
  static constexpr int kMostSlots = 12;
  static constexpr int kSlots = kRingBytes / sizeof(Step) < kMostSlots ? kRingBytes / sizeof(Step) : kMostSlots;
  static_assert(kRowGroups * kColumnGroups == kGroups && X::kBytes % kAlignment == 0 && W::kBytes % kAlignment == 0);
};

template <class Shape>
struct Shared {
  typename Shape::Step slots[Shape::kSlots];
  TmaRing<sm90::Mbarrier, Shape::kSlots> ring;
};
template <class Shape>
constexpr std::size_t shared_bytes() {
  return sizeof(Shared<Shape>) + kAlignment;
}

template <class Work, class F>
__device__ void each_item(const Work& work, F f) {
  for (int index = static_cast<int>(blockIdx.x); index < work.count(); index += static_cast<int>(gridDim.x))
    f(work.at(index));
}

// One thread. Other warps of the block may wait for other ranks, hence the long patience of both roles.
template <class Shape, class Work>
__device__ void load_steps(const Work& work, Shared<Shape>& shared, const KernelWaits& waits) {
  RingProducer<Shape::kSlots> at;
  each_item(work, [&](const typename Work::Item& item) {
    work.each_step(item, [&](std::uint32_t x_bytes, int w_column, auto copy) {
      auto& step = shared.slots[at.slot()];
      const std::uint32_t full = shared.ring.full(at).address();
      shared.ring.template wait_until_empty<sm90::LongPatience>(at, waits);
      shared.ring.full(at).arrive_expecting(x_bytes + static_cast<std::uint32_t>(sizeof step.w));
      copy(sm90::shared_address(step.x), full);
      sm90::copy_box(sm90::shared_address(step.w), work.w_map(), w_column, item.first_w_row, full);
      at.advance();
    });
  });
}

// A warpgroup's part of all tiles of this block.
template <class T, class Shape, class Work>
class Multiplier {
 public:
  __device__ Multiplier(const Work& work, Shared<Shape>& shared, int group, const KernelWaits& waits)
      : work_(work),
        shared_(shared),
        waits_(waits),
        first_row_(group % Shape::kRowGroups * kGroupRows),
        first_column_(group / Shape::kRowGroups * Shape::kGroupColumns) {}

  __device__ void run() {
    each_item(work_, [&](const typename Work::Item& item) {
      multiply(work_.steps(item));
      if (threadIdx.x == kGroupThreads) work_.loaded(item);
      work_.begin_store(item);
      store(item);
      work_.end_store(item);
    });
  }

 private:
  using X = typename Shape::X;
  using W = typename Shape::W;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) % kGroupThreads / 32; }  // of the warpgroup

  // A slot is released when its WGMMAs have ended; they end while those of the next slot are in flight.
  __device__ void multiply(int steps) {
    int last_slot = 0;
    for (int k = 0; k < steps; ++k, at_.advance()) {
      shared_.ring.template wait_until_full<sm90::LongPatience>(at_, waits_);
      auto& step = shared_.slots[at_.slot()];
      const std::uint64_t x = sm90::matrix_descriptor<X::kRowBytes>(
                              sm90::shared_address(step.x) + static_cast<std::uint32_t>(first_row_ * X::kRowBytes),
                              8 * X::kRowBytes, 0),
                          w = sm90::matrix_descriptor<W::kRowBytes>(
                              sm90::shared_address(step.w) + static_cast<std::uint32_t>(first_column_ * W::kRowBytes),
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
        release(last_slot);
      }
      last_slot = at_.slot();
    }
    sm90::wgmma_wait<0>();
    sm90::pin(sums_);
    if (steps > 0) release(last_slot);
  }

  __device__ void release(int slot) const {
    __syncwarp();
    if (lane() == 0) shared_.ring.empty(slot).arrive();
  }

  // A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen; of each row columns 2 * (lane % 4) + {0, 1} of
  // every eight.
  __device__ void store(const typename Work::Item& item) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row_ + warp() * 16 + half * 8 + lane() / 4;
      if (row >= item.rows) continue;
#pragma unroll
      for (int i = 0; i < Shape::kGroupColumns / 8; ++i) {
        const int column = first_column_ + i * 8 + lane() % 4 * 2;
        if (column < item.columns) work_.store(item, row, column, sums_[4 * i + 2 * half], sums_[4 * i + 2 * half + 1]);
      }
    }
  }

  const Work& work_;
  Shared<Shape>& shared_;
  const KernelWaits& waits_;
  const int first_row_, first_column_;
  RingConsumer<Shape::kSlots> at_;
  float sums_[Shape::kSums];
};

// The whole block, of Shape::kThreads threads and shared_bytes<Shape>() of dynamic shared memory. When it returns, the
// threads that multiply have stored all their tiles; those of warpgroup 0 return at once after the last load.
// Returns whether this thread is one that multiplies.
template <class T, class Shape, class Work>
__device__ bool run(const Work& work, const KernelWaits& waits) {
  extern __shared__ std::byte memory[];
  const std::uint32_t misaligned = sm90::shared_address(memory) % kAlignment;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<Shared<Shape>*>(memory + (misaligned == 0 ? 0 : kAlignment - misaligned));
  if (threadIdx.x == 0) {
    shared.ring.init({.producers = 1, .consumers = Shape::kMultipliers / 32});
    sm90::publish_barriers();
    sm90::prefetch_map(work.w_map());
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  constexpr bool kManySums = Shape::kSums >= 128;  // more registers than an even division gives
  if (group == 0) {
    if constexpr (kManySums) sm90::give_up_registers<40>();
    if (threadIdx.x == 0) load_steps<Shape>(work, shared, waits);
    return false;
  }
  if constexpr (kManySums) sm90::take_registers<232>();
  Multiplier<T, Shape, Work>(work, shared, group - 1, waits).run();
  return true;
}

}  // namespace heddle::tile_gemm
