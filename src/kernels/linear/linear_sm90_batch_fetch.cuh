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

// The ring of W.
struct BatchRing {
  int slots;
  int part_bytes;  // of a line's rows of a tile, or of its gate or up
  int slot_bytes;
  int slots_ahead;  // on their way while the ring is filled for the first time
};

struct BatchOperands {
  const float* bias;  // or null
  void* y;
  std::int64_t y_stride;
  int num_tokens;
  int steps;        // along k
  int steps_apart;  // by which the first steps of neighbouring tiles differ
  BatchTiles tiles;
  BatchRing ring;
  bool y_is_float;
  bool y_takes_fours;  // four neighbours of a token at once: 16-bit, aligned to 8 bytes, outputs a multiple of 4
};

// Of x, and of W in boxes as high as each kind of tile.
struct BatchMaps {
  CUtensorMap tokens, weights, longer_weights;
};

// A block's part of k: `count` steps from `first` on. A tile may begin at its own one of them and wrap around, so that
// not all blocks load the same part of x at once.
struct BatchSteps {
  int first, count;

  template <class Config>
  static __device__ BatchSteps of(const BatchOperands& op, int rank) {
    const auto steps = static_cast<std::uint32_t>(op.steps), part = static_cast<std::uint32_t>(rank);
    const auto first = static_cast<int>(begin_of_part<std::uint32_t>(steps, part, Config::kCluster));
    return {.first = first,
            .count = static_cast<int>(begin_of_part<std::uint32_t>(steps, part + 1, Config::kCluster)) - first};
  }

  // Calls f(step) for the steps of a tile.
  template <class F>
  __device__ void each(const BatchOperands& op, int tile, F f) const {
    if (count == 0) return;
    const int begin =
        first + static_cast<int>(static_cast<unsigned>(tile * op.steps_apart) % static_cast<unsigned>(count));
    for (int i = 0, step = begin; i < count; ++i) {
      f(step);
      if (++step == first + count) step = first;
    }
  }
};

// Initializes the barriers; the others meet it at `named_barrier`, while it goes on. A whole warp.
template <class Config>
__device__ void init_barriers(typename Config::Shared& shared, int named_barrier) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < Config::kMostSlots) {
    shared.weights_ring.full(lane).init(1);
    shared.weights_ring.empty(lane).init(Config::kWarps);
  }
  if (lane == 31) {
    shared.tokens_ring.init({.producers = 1, .consumers = Config::kWarps});
    shared.merged.init(1);
    if constexpr (Config::kCluster > 1) shared.taken.init((Config::kCluster - 1) * Config::kGroups * Config::kOwnWarps);
  }
  sm90::publish_barriers();
  __syncwarp();
  sm90::arrive_at_threads(named_barrier, Config::kThreads);
}

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
  PartialRingProducer at;
  int issued = 0;
  each_batch_tile<Config>(op.tiles, [&](int tile) {
    const int begin = op.tiles.begin(tile);
    const CUtensorMap& map = op.tiles.is_longer(tile) ? maps.longer_weights : maps.weights;
    const int bytes = Config::kLines * Config::kParts * Config::kLineBytes * op.tiles.height(tile);
    part.each(op, tile, [&](int step) {
      shared.weights_ring.wait_until_empty(at, waits);
      if (issued >= op.ring.slots_ahead && issued < op.ring.slots)
        shared.weights_ring.full(issued - op.ring.slots_ahead).wait(waits, 0);
      sm90::Mbarrier& here = shared.weights_ring.full(at);
      here.arrive_expecting(static_cast<std::uint32_t>(bytes));
      std::uint32_t to =
          sm90::shared_address(shared.weights) + static_cast<std::uint32_t>(at.slot() * op.ring.slot_bytes);
      const int column = step * Config::kStepFeatures;
#pragma unroll
      for (int line = 0; line < Config::kLines; ++line)
#pragma unroll
        for (int half = 0; half < Config::kParts; ++half, to += static_cast<std::uint32_t>(op.ring.part_bytes))
          sm90::copy_box(to, map, column + line * Config::kLineFeatures, begin + half * op.tiles.all, here.address());
      ++issued;
      at.advance(op.ring.slots);
    });
  });
}

// Issues the loads of x. One thread.
template <class Config>
__device__ void fetch_tokens(const BatchOperands& op, const BatchMaps& maps, typename Config::Shared& shared, int rank,
                             const KernelWaits& waits) {
  const BatchSteps part = BatchSteps::of<Config>(op, rank);
  RingProducer<Config::kTokenSlots> at;
  each_batch_tile<Config>(op.tiles, [&](int tile) {
    part.each(op, tile, [&](int step) {
      shared.tokens_ring.wait_until_empty(at, waits);
      sm90::Mbarrier& here = shared.tokens_ring.full(at);
      here.arrive_expecting(sizeof shared.tokens[0]);
#pragma unroll
      for (int line = 0; line < Config::kLines; ++line)
        sm90::copy_box(sm90::shared_address(shared.tokens[at.slot()][line]), maps.tokens,
                       step * Config::kStepFeatures + line * Config::kLineFeatures, 0, here.address());
      at.advance();
    });
  });
}

}  // namespace heddle
