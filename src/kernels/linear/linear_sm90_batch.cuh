// GEMM of a decode batch: 17 to 64 tokens, few enough that memory bounds it. WGMMA takes 64 rows of W as its left
// operand and all tokens as its right one, a fifth of the time that memory takes for the rows.
//
// A block takes tiles of W, rows times all of k. Where blocks have few rows, the two blocks of a cluster have the same
// tile, and each its half of k: what they read of x halves beside W. At the end of a tile each pushes the sums of half
// of the rows to the other, which adds them in the order of k. A row is never split between clusters: nobody waits for
// another cluster, and no bit depends on the number of SMs or on time.
//
// One warp streams W by TMA through a ring that has most of shared memory, and begins before earlier kernels have
// ended (PDL). A second one waits for these and loads x into a ring of its own. The other warps multiply.
//
// linear_sm90_batch_shape.cuh has the sizes, linear_sm90_batch_fetch.cuh the loads, docs/notes/linear_gpu.md the
// measurements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cluster/cluster_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "kernels/linear/linear_sm90_batch_fetch.cuh"
#include "kernels/linear/linear_sm90_batch_shape.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle {

// The part of one warpgroup in this block's tiles. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen of
// each 64 rows, and of every eight tokens tokens 2 * (lane % 4) + {0, 1}.
template <class Config, class T>
class BatchGroup {
  using Shared = typename Config::Shared;
  static constexpr int kTiles = Config::kTilesOfGroup, kTilesOfPart = kTiles / Config::kParts;
  static constexpr int kFours = Config::kFours, kSums = 4 * kFours;

 public:
  // `warp`: of the block, in a register that the compiler knows to be uniform.
  __device__ BatchGroup(const BatchOperands& op, Shared& shared, int warp, int rank, const KernelWaits& waits)
      : op_(op), shared_(shared), waits_(waits), group_(warp / 4), warp_(warp % 4), rank_(rank) {}

  __device__ void run() {
    const BatchSteps part = BatchSteps::of<Config>(op_, rank_);
    const int teams = static_cast<int>(gridDim.x) / Config::kCluster;
    if constexpr (Config::kCluster > 1) sm90::wait_for_cluster();  // others' barriers are initialised
    int round = 0;
    each_batch_tile<Config>(op_.tiles, [&](int tile) {
      multiply(part.count);
      if constexpr (Config::kCluster > 1) merge(round++, tile + teams < op_.tiles.count);
      if (stores()) store(op_.tiles.begin(tile), op_.tiles.outputs(tile));
      __syncwarp();
    });
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int owner() const { return warp_ / Config::kOwnWarps; }  // the block that stores this warp's rows
  __device__ bool stores() const { return owner() == rank_; }

  // Of `tile` of this group, in its half of the outputs' rows.
  __device__ int first_row(int tile) const { return (group_ * kTilesOfPart + tile % kTilesOfPart) * 64; }

  // A step's slots are released when its WGMMAs have ended; the thread waits for them once those of the next step are
  // in flight.
  __device__ void multiply(int steps) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[tile][i] = 0;
    std::uint32_t last_weights = 0, last_tokens = 0;  // `empty` of the last step's slots
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      shared_.weights_ring.wait_until_full(weights_at_, waits_);
      shared_.tokens_ring.wait_until_full(tokens_at_, waits_);
      multiply_step();
      if (step > 0) {
        sm90::wgmma_wait<1>();
        release(last_weights, last_tokens);
      }
      last_weights = shared_.weights_ring.empty(weights_at_).address();
      last_tokens = shared_.tokens_ring.empty(tokens_at_).address();
      weights_at_.advance(op_.ring.slots);
      tokens_at_.advance();
    }
    sm90::wgmma_wait<0>();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) sm90::pin(sums_[tile]);
    if (steps > 0) release(last_weights, last_tokens);
  }

  // Starts to multiply a slot of x by one of W.
  __device__ void multiply_step() {
    const std::uint32_t slot =
        sm90::shared_address(shared_.weights) + static_cast<std::uint32_t>(weights_at_.slot() * op_.ring.slot_bytes);
    const auto& tokens = shared_.tokens[tokens_at_.slot()];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) sm90::pin(sums_[tile]);
    sm90::wgmma_fence();
#pragma unroll
    for (int line = 0; line < Config::kLines; ++line) {
      const std::uint64_t x = descriptor(sm90::shared_address(tokens[line]));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int part = line * Config::kParts + tile / kTilesOfPart;
        const std::uint64_t w = descriptor(
            slot + static_cast<std::uint32_t>(part * op_.ring.part_bytes + first_row(tile) * Config::kLineBytes));
        constexpr int kFeatures = 16;  // per instruction, two bytes each
#pragma unroll
        for (int i = 0; i < Config::kLineFeatures; i += kFeatures)
          sm90::wgmma_ss<T>(sums_[tile], sm90::advanced(w, 2 * i), sm90::advanced(x, 2 * i), 1);
      }
    }
    sm90::wgmma_commit();
  }

  static __device__ std::uint64_t descriptor(std::uint32_t address) {
    return sm90::matrix_descriptor<Config::kLineBytes>(address, 8 * Config::kLineBytes, 0);
  }

  static __device__ void release(std::uint32_t weights, std::uint32_t tokens) {
    if (lane() != 0) return;
    sm90::arrive_in_block(weights);
    sm90::arrive_in_block(tokens);
  }

  // Pushes the sums of rows that other blocks store, and adds theirs to the others, in the order of k.
  __device__ void merge(int round, bool again) {
    if (group_ == 0 && warp_ == rank_ * Config::kOwnWarps && lane() == 0)
      shared_.merged.arrive_expecting(Config::kPushedBytes);
    if (stores())
      take(round, again);
    else
      push(round);
    __syncwarp();
  }

  __device__ void push(int round) const {
    if (round > 0) shared_.taken.template wait<sm90::WaitDeadline, sm90::Writers::cluster>(waits_, (round - 1) % 2);
    const int sender = rank_ < owner() ? rank_ : rank_ - 1;
    const std::uint32_t to = sm90::address_in_block(sm90::shared_address(pushed(sender)), owner());
    const std::uint32_t barrier = sm90::address_in_block(shared_.merged.address(), owner());
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < kFours; ++i) sm90::push_four(to + (tile * kFours + i) * 512, four(tile, i), barrier);
  }

  __device__ void take(int round, bool again) {
    shared_.merged.template wait<sm90::WaitDeadline, sm90::Writers::cluster>(waits_, round % 2);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const float4 mine = four(tile, i);
        float4 sum = mine;
#pragma unroll
        for (int block = 0; block < Config::kCluster; ++block) {
          float4 v = mine;
          if (block != rank_) v = pushed(block < rank_ ? block : block - 1)[(tile * kFours + i) * 32];
          sum = block == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
        }
        float* to = &sums_[tile][4 * i];
        to[0] = sum.x, to[1] = sum.y, to[2] = sum.z, to[3] = sum.w;
      }
    __syncwarp();
    if (!again || lane() >= Config::kCluster - 1) return;  // who has pushed for the last time may have ended
    const int to = lane() < rank_ ? lane() : lane() + 1;
    sm90::release_in_block(sm90::address_in_block(shared_.taken.address(), to));
  }

  __device__ float4 four(int tile, int i) const {
    const float* from = &sums_[tile][4 * i];
    return make_float4(from[0], from[1], from[2], from[3]);
  }

  // This lane's place in what a block pushes to the one that stores this warp's rows.
  __device__ float4* pushed(int sender) const {
    const int warp_of_sender = group_ * Config::kOwnWarps + warp_ % Config::kOwnWarps;
    return shared_.pushed + (sender * Config::kGroups * Config::kOwnWarps + warp_of_sender) * (kTiles * kFours * 32) +
           lane();
  }

  __device__ void store(int begin, int outputs) const {
    if constexpr (Config::kOutput == StreamOutput::sums)
      if (op_.y_is_float) return store_singly<float>(begin, outputs);
    if (op_.y_takes_fours)
      store_fours(begin, outputs);
    else
      store_singly<T>(begin, outputs);
  }

  // Of the thread's two rows of `tile`.
  struct Bias {
    float low[Config::kParts], high[Config::kParts];
  };
  __device__ Bias bias_of(int tile, int begin, int outputs) const {
    Bias bias{};
    const int row = first_row(tile) + warp_ * 16 + lane() / 4;
    if (op_.bias == nullptr) return bias;
#pragma unroll
    for (int part = 0; part < Config::kParts; ++part) {
      const float* const from = op_.bias + begin + row + part * op_.tiles.all;
      if (row < outputs) bias.low[part] = from[0];
      if (row + 8 < outputs) bias.high[part] = from[8];
    }
    return bias;
  }

  // y of sum `i` of the thread's in `tile`.
  template <class Y>
  __device__ float value(int tile, int i, const float (&bias)[Config::kParts]) const {
    const float sum = sums_[tile][i] + bias[0];
    if constexpr (Config::kOutput == StreamOutput::swiglu)
      return gated(sum, sums_[kTilesOfPart + tile][i] + bias[1], Y{});
    return sum;
  }

  template <class Y>
  __device__ void store_singly(int begin, int outputs) const {
#pragma unroll
    for (int tile = 0; tile < kTilesOfPart; ++tile) {
      const Bias bias = bias_of(tile, begin, outputs);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const bool high = i % 4 >= 2;
        const int row = first_row(tile) + warp_ * 16 + high * 8 + lane() / 4;
        const int token = i / 4 * 8 + lane() % 4 * 2 + i % 2;
        if (row < outputs && token < op_.num_tokens)
          static_cast<Y*>(op_.y)[token * op_.y_stride + begin + row] =
              sm90::rounded<Y>(value<Y>(tile, i, high ? bias.high : bias.low));
      }
    }
  }

  // Transposes 8 rows by 8 tokens at a time, then lanes exchange what they have of 16 rows, so that a lane has four
  // neighbours of one token and four lanes have 32 bytes.
  __device__ void store_fours(int begin, int outputs) const {
    const int quarter = lane() % 4;
    const bool odd = quarter % 2 != 0;
#pragma unroll
    for (int tile = 0; tile < kTilesOfPart; ++tile) {
      const Bias bias = bias_of(tile, begin, outputs);
      const int row = first_row(tile) + warp_ * 16 + (odd ? 6 : 0) + 2 * quarter;
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const std::uint32_t low =
            sm90::transpose(sm90::pack<T>(value<T>(tile, 4 * i, bias.low), value<T>(tile, 4 * i + 1, bias.low)));
        const std::uint32_t high =
            sm90::transpose(sm90::pack<T>(value<T>(tile, 4 * i + 2, bias.high), value<T>(tile, 4 * i + 3, bias.high)));
        const std::uint32_t other = __shfl_xor_sync(~0u, odd ? low : high, 1);
        const int token = 8 * i + lane() / 4;
        if (row < outputs && token < op_.num_tokens)
          *reinterpret_cast<uint2*>(static_cast<T*>(op_.y) + token * op_.y_stride + begin + row) =
              odd ? make_uint2(other, high) : make_uint2(low, other);
      }
    }
  }

  const BatchOperands& op_;
  Shared& shared_;
  const KernelWaits& waits_;
  const int group_, warp_, rank_;  // warp of the group
  PartialRingConsumer weights_at_;
  RingConsumer<Config::kTokenSlots> tokens_at_;
  float sums_[kTiles][kSums];
};

template <class Config, class T>
__global__ void __launch_bounds__(Config::kThreads, 1)
    linear_batch(const __grid_constant__ BatchOperands op, const __grid_constant__ BatchMaps maps,
                 const __grid_constant__ KernelWaits waits) {
  extern __shared__ std::byte memory[];
  const std::uint32_t misaligned =
      sm90::shared_address(memory) % Config::kAlignment;  // the swizzle follows address bits
  auto& shared =
      *reinterpret_cast<typename Config::Shared*>(memory + (misaligned == 0 ? 0 : Config::kAlignment - misaligned));
  let_later_kernels_start();
  const int rank = static_cast<int>(blockIdx.x) % Config::kCluster;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  constexpr int kBarrierOfAll = 1;
  if (threadIdx.x == 32 * Config::kWarps) sm90::prefetch_map(maps.weights);
  if (warp == Config::kWarps)
    init_barriers<Config>(shared, kBarrierOfAll);
  else
    sm90::sync_threads(kBarrierOfAll, Config::kThreads);
  if constexpr (Config::kCluster > 1) sm90::arrive_at_cluster();
  // An if with its else: where the multiplying warps end in a return of their own, the compiler serialises WGMMAs.
  if (warp >= Config::kWarps) {
    const bool first = threadIdx.x % 32 == 0;
    if (warp == Config::kWarps && first) fetch_weights<Config>(op, maps, shared, rank, waits);
    if (warp > Config::kWarps && first) sm90::prefetch_map(maps.tokens);
    wait_for_earlier_kernels();
    if (warp > Config::kWarps && first) fetch_tokens<Config>(op, maps, shared, rank, waits);
    __syncwarp();
    if constexpr (Config::kCluster > 1) sm90::wait_for_cluster();
  } else {
    wait_for_earlier_kernels();  // they may still read y
    BatchGroup<Config, T>(op, shared, warp, rank, waits).run();
  }
}

}  // namespace heddle
