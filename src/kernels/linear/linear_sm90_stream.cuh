// Small-M GEMM: streams W through shared memory once, at memory bandwidth, and multiplies it by x on tensor cores.
// mma.sync takes 16 rows of W and 8 tokens, so up to 8 tokens cost the same as one.
//
// A block takes an even part of W's rows, in tiles of one height (linear_shares.h). Its warps split k among them in
// chunks of 64 elements, which are whole lines of 128 bytes. A lane loads 16 bytes, 8 neighbours of a row. That is not
// the order of k that mma.sync defines, but the sum is right because x has the same order. Each warp copies what it
// alone reads, so W needs no barrier, only the lanes' own cp.async groups.
//
// A separate warp waits for the kernel ahead and loads x by TMA, while the others already fill their rings. x is loaded
// whole where it fits; otherwise step by step into slots beside the weights, with a full and an empty barrier each. At
// the end of a tile the warps' sums are added in shared memory in the order of the warps, while the copies of the next
// tile are in flight. That barrier also keeps the warps together, which makes DRAM accesses more local.
//
// linear_sm90_stream_shape.cuh has the sizes, linear_sm90_stream_copy.cuh the copies, docs/notes/linear_gpu.md the
// measurements and alternatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "kernels/linear/linear_shares.h"
#include "kernels/linear/linear_sm90_plain.cuh"
#include "kernels/linear/linear_sm90_stream_copy.cuh"
#include "kernels/linear/linear_sm90_stream_shape.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {

// Adds the warps' `sums` in the order of the warps and stores the outputs.
template <class Config, StreamOutput kOutput, class Operands>
__device__ inline void store_tile(const Operands& op, std::int64_t first, int outputs, const float* sums) {
  constexpr int kParts = rows_of_output(kOutput), kTileOutputs = Config::kTileRows / kParts;
  for (int i = static_cast<int>(threadIdx.x); i < op.num_tokens * kTileOutputs; i += Config::kThreads) {
    const int token = i / kTileOutputs, output = i % kTileOutputs;
    if (output >= outputs) continue;
    float parts[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* at = sums + token * Config::kRowStride + part * kTileOutputs + output;
      parts[part] = *at;
#pragma unroll
      for (int warp = 1; warp < Config::kWarps; ++warp) parts[part] += at[warp * Config::kTokens * Config::kRowStride];
      if (op.bias != nullptr) parts[part] += op.bias[first + output + part * (op.out_features / kParts)];
    }
    using Y = std::remove_pointer_t<decltype(op.y)>;
    float value = parts[0];
    if constexpr (kOutput == StreamOutput::swiglu) value = gated(parts[0], parts[1], Y{});
    op.y[token * op.y_stride + first + output] = sm90::rounded<Y>(value);
  }
}

// Rows of x and W are 16-byte aligned, in_features is a multiple of 8, num_tokens <= 8 * kTokenTiles. Tiles: ShareTiles
// for a grid of kShares blocks, StreamTiles for any grid.
template <class Config, StreamOutput kOutput, class Tiles, class T, class Y>
__global__ void __launch_bounds__(Config::kBlockThreads, 1)
    linear_stream(const __grid_constant__ LinearOperands<T, T, Y> op,
                  const __grid_constant__ typename Tiles::Sizes sizes,
                  const __grid_constant__ StreamMap<Config> tokens_map, const __grid_constant__ KernelWaits waits) {
  constexpr int kRowPieces = Config::kRowPieces;
  constexpr int kParts = rows_of_output(kOutput), kPartPieces = kRowPieces / kParts;
  constexpr int kTokenTiles = Config::kTokenTiles;
  constexpr std::uint32_t kStepBytes = Config::kStepBytes;
  constexpr int kWarpFeatures = Config::kWarpFeatures, kWarpsOfBox = Config::kBoxFeatures / kWarpFeatures;
  extern __shared__ __align__(128) uint4 shared[];
  auto* sums = reinterpret_cast<float*>(shared);
  auto* whole_tokens = reinterpret_cast<T*>(shared + Config::kSumsBytes / sizeof(uint4));
  const std::size_t before_ring = Config::kSumsBytes + whole_tokens_bytes<Config>(op.num_tokens, op.in_features);
  uint4* ring = shared + before_ring / sizeof(uint4);  // [kDepth], each [kRowPieces][kThreads] of W, then x of the step

  // At once, so that the kernels up to the next GEMM are resident and waiting when this one ends.
  let_later_kernels_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  __shared__ StreamBarriers<Config> barriers;
  if constexpr (Config::kWholeTokens)
    if (warp == Config::kWarps) return bring_whole_tokens<Config>(op, whole_tokens, barriers);
  const int row_of_lane = lane / 4, piece_of_lane = lane % 4;  // the lane's operands
  const int row_of_copy = lane / 8, piece_of_copy = lane % 8;
  const int in_features = static_cast<int>(op.in_features);
  const std::int64_t outputs = op.out_features / kParts;
  Tiles tiles = Tiles::of_block(sizes, blockIdx.x, gridDim.x);
  const int steps = tiles.steps(), num_tiles = tiles.count(), total_steps = steps * num_tiles;

  const std::uint64_t policy = evict_first_policy();
  const auto my_ring = static_cast<std::uint32_t>(__cvta_generic_to_shared(ring + thread));
  StreamCursor<Config, Tiles> weights{
      .tiles = tiles, .position = tiles.first_step(), .first_k = warp * kWarpFeatures + piece_of_copy * 8};
  // A warp's pieces [kRowPieces * 4][8]. The halves of every second row are swapped, so that the four pieces of two
  // neighbouring rows that eight lanes read at once lie in different banks.
  const std::uint32_t my_rows = my_ring - thread * 16 +
                                static_cast<std::uint32_t>(warp * kRowPieces * 512 + row_of_copy * 128 +
                                                           (piece_of_copy ^ row_of_copy % 2 * 4) * 16);
  const auto copy_weights = [&](std::uint32_t slot) {
    const T* from = op.weight + std::int64_t{weights.tiles.begin + row_of_copy} * op.in_features + weights.k();
    const int rows_left = weights.tiles.tile_outputs() - row_of_copy;
    const bool in_row = weights.k() < in_features;
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) {
      const int row = i % kPartPieces * 4;
      copy_weights_16(my_rows + slot * kStepBytes + i * 512, from + (row + i / kPartPieces * outputs) * op.in_features,
                      in_row && row < rows_left, policy);
    }
    weights.advance();
  };
  StreamCursor<Config, Tiles> tokens = weights;  // where x is loaded; with all of x in shared memory, where it is used
  if constexpr (!Config::kWholeTokens)
    if (warp == Config::kWarps) {
      tokens.first_k = 0;
      return bring_tokens_by_steps<Config>(tokens_map, op.num_tokens, tokens, sm90::shared_address(ring), total_steps,
                                           barriers, waits);
    }
  tokens.first_k = warp * kWarpFeatures + piece_of_lane * 8;
  const auto token_of = [&](int n) { return n * 8 + row_of_lane; };
  // One cp.async group per step: when step i is due, all but the last kDepth - 1 groups must have arrived.
  int steps_copied = 0;
#pragma unroll 1
  for (; steps_copied < Config::kDepth; ++steps_copied) {
    // Fills the ring no faster than memory delivers: the kernels in between read a few lines through the same queues,
    // and this kernel waits for them.
    wait_for_copy_groups<Config::kGroupsAhead - 1>();
    if (steps_copied < total_steps) copy_weights(steps_copied);
    end_copy_group();
  }
  sm90::sync_threads(kBarrierOfAll, Config::kBlockThreads);
  wait_for_earlier_kernels();  // without a deadline, as they may take long; the waits below have one
  if constexpr (Config::kWholeTokens) barriers.wait(waits, 0);

  const int whole_stride = whole_tokens_stride<Config>(in_features);
  RingConsumer<Config::kDepth> at;
#pragma unroll 1
  for (int tile = 0; tile < num_tiles; ++tile) {
    float c[Config::kRowTiles][kTokenTiles][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copy_groups<Config::kDepth - 1>();
      if constexpr (!Config::kWholeTokens) barriers.wait_until_full(at, waits);
      __syncwarp();  // makes the other lanes' copies visible
      const auto slot = static_cast<std::uint32_t>(at.slot());
      const uint4* of_slot = ring + slot * (kStepBytes / sizeof(uint4));
      const T* tokens_of_slot = reinterpret_cast<const T*>(of_slot + kRowPieces * Config::kThreads) +
                                warp / kWarpsOfBox * (Config::kTokens * Config::kBoxFeatures) +
                                warp % kWarpsOfBox * kWarpFeatures + piece_of_lane * 8;
      const uint4* rows = of_slot + warp * (kRowPieces * 32) + row_of_lane * 8;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int piece = (half * 4 + piece_of_lane) ^ row_of_lane % 2 * 4;
        uint4 x[kTokenTiles];
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          if constexpr (Config::kWholeTokens) {
            x[n] = make_uint4(0, 0, 0, 0);
            if (token_of(n) < op.num_tokens)
              x[n] =
                  *reinterpret_cast<const uint4*>(whole_tokens + token_of(n) * whole_stride + tokens.k() + half * 32);
          } else {  // rows of tokens that do not exist hold anything: their column of c is not stored
            x[n] = *reinterpret_cast<const uint4*>(tokens_of_slot + token_of(n) * Config::kBoxFeatures + half * 32);
          }
        }
#pragma unroll
        for (int m = 0; m < Config::kRowTiles; ++m) {
          const uint4 low = rows[m * 128 + piece], high = rows[m * 128 + 64 + piece];
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) sm90::multiply_add_packs<T>(c[m][n], low, high, x[n]);
        }
      }
      if constexpr (Config::kWholeTokens) tokens.position = tokens.position + 1 == steps ? 0 : tokens.position + 1;
      __syncwarp();  // all lanes have read, so the slot may be overwritten
      const bool is_used_again = steps_copied < total_steps;
      if (is_used_again) {
        copy_weights(slot);
        ++steps_copied;
      }
      end_copy_group();
      if constexpr (!Config::kWholeTokens)
        if (is_used_again) {
          // TMA writes a later step's x here, and an arrival alone does not keep it behind the reads (tma_ring.h). The
          // copies of W, which are no TMA, go ahead of the fence: it would delay them by some 75 ns a step.
          sm90::fence_async_proxy();
          __syncwarp();
          if (lane == 0) barriers.empty(at).arrive();
        }
      at.advance();
    }

    if (tile > 0) sm90::sync_threads(kBarrierOfMultipliers, Config::kThreads);  // the last sums have been read
    float* mine = sums + warp * Config::kTokens * Config::kRowStride;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mine[(n * 8 + piece_of_lane * 2 + i % 2) * Config::kRowStride + m * 16 + i / 2 * 8 + row_of_lane] =
              c[m][n][i];
    sm90::sync_threads(kBarrierOfMultipliers, Config::kThreads);
    store_tile<Config, kOutput>(op, tiles.begin, tiles.tile_outputs(), sums);
    if (tiles.advance()) tokens.position = tiles.first_step();
  }
}

}  // namespace heddle
