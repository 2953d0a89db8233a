// Operands of linear_sm90_batch.cuh, and how TMA loads them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "device/even_parts.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "kernels/linear/linear_sm90_batch_shape.cuh"

namespace heddle {

struct BatchOperands {
  const float* bias;  // or null
  void* y;
  std::int64_t y_stride;
  int num_tokens;
  int steps;        // along k
  int steps_apart;  // by which clusters' first steps along k differ
  BatchTiles tiles;
  bool y_is_float;
  bool y_takes_fours;  // four neighbours of a token at once: 16-bit, aligned to 8 bytes, outputs a multiple of 4
};

// Of x, and of W in boxes as high as each kind of tile.
struct BatchMaps {
  CUtensorMap tokens, weights, longer_weights;
};

// A block's part of k: `count` steps from `first` on, beginning `offset` steps later and wrapping around.
struct BatchSteps {
  int first, count, offset;

  template <class Config>
  static __device__ BatchSteps of(const BatchOperands& op, int rank) {
    const auto steps = static_cast<std::uint32_t>(op.steps), part = static_cast<std::uint32_t>(rank);
    const auto first = static_cast<int>(begin_of_part<std::uint32_t>(steps, part, Config::kCluster));
    const int count = static_cast<int>(begin_of_part<std::uint32_t>(steps, part + 1, Config::kCluster)) - first;
    const int offset =
        op.steps_apart > 0 && count > 0 ? static_cast<int>(blockIdx.x) / Config::kCluster * op.steps_apart % count : 0;
    return {.first = first, .count = count, .offset = offset};
  }
  __device__ int at(int i) const { return first + (i + offset < count ? i + offset : i + offset - count); }
};

// Calls f(tile) for the tiles of this block's cluster. All roles of a block go through them in this order.
template <class Config, class F>
__device__ void each_batch_tile(const BatchTiles& tiles, F f) {
  const int first = static_cast<int>(blockIdx.x) / Config::kCluster;
  const int teams = static_cast<int>(gridDim.x) / Config::kCluster;
  for (int tile = first; tile < tiles.count; tile += teams) f(tile);
}

// Issues the loads of W. One thread.
template <class Config>
__device__ void fetch_weights(const BatchOperands& op, const BatchMaps& maps, typename Config::Shared& shared, int rank,
                              const KernelWaits& waits) {
  const BatchSteps part = BatchSteps::of<Config>(op, rank);
  RingProducer<Config::kSlots> at;
  int issued = 0;
  each_batch_tile<Config>(op.tiles, [&](int tile) {
    const int begin = op.tiles.begin(tile), height = op.tiles.height(tile);
    const CUtensorMap& map = op.tiles.is_longer(tile) ? maps.longer_weights : maps.weights;
    const auto bytes = static_cast<std::uint32_t>(Config::kBlocks * Config::kParts * Config::kRowBytes * height);
    for (int i = 0; i < part.count; ++i, ++issued, at.advance()) {
      const int block_of_k = part.at(i) * Config::kBlocks;
      if (issued >= Config::kSlots)
        shared.ring.wait_until_empty(at, waits);
      else if (issued >= Config::kStepsAhead)
        shared.weights[issued - Config::kStepsAhead].wait(waits, 0);
      sm90::Mbarrier& here = shared.weights[at.slot()];
      here.arrive_expecting(bytes);
#pragma unroll
      for (int block = 0; block < Config::kBlocks; ++block)
#pragma unroll
        for (int half = 0; half < Config::kParts; ++half)
          sm90::copy_box(sm90::shared_address(shared.slots[at.slot()].weights[block]) +
                             half * Config::kPartRows * Config::kRowBytes,
                         map, (block_of_k + block) * Config::kBlockFeatures, begin + half * op.tiles.all,
                         here.address());
    }
  });
}

// Issues the loads of x. One thread.
template <class Config>
__device__ void fetch_tokens(const BatchOperands& op, const BatchMaps& maps, typename Config::Shared& shared, int rank,
                             const KernelWaits& waits) {
  const BatchSteps part = BatchSteps::of<Config>(op, rank);
  RingProducer<Config::kSlots> at;
  each_batch_tile<Config>(op.tiles, [&](int) {
    for (int i = 0; i < part.count; ++i, at.advance()) {
      const int block_of_k = part.at(i) * Config::kBlocks;
      shared.ring.wait_until_empty(at, waits);
      sm90::Mbarrier& here = shared.ring.full(at);
      here.arrive_expecting(sizeof Config::Slot::tokens);
#pragma unroll
      for (int block = 0; block < Config::kBlocks; ++block)
        sm90::copy_box(sm90::shared_address(shared.slots[at.slot()].tokens[block]), maps.tokens,
                       (block_of_k + block) * Config::kBlockFeatures, 0, here.address());
    }
  });
}

}  // namespace heddle
