// y = the sum over ranks of x W^T, on every rank: a GEMM whose tiles are pushed to the rank that sums them, and whose
// sums are pushed to all ranks, tile by tile, in place of a GEMM and an all-reduce. The bytes are those of a two-phase
// all-reduce, and no rank waits for a whole phase. Of few rows on a GPU the whole product goes by packets, in one trip or
// in two (linear_reduce_scatter/reduce_small_m.cuh).
//
// Sums are in float32 and in rank order. One rank takes each, or, in one trip, every rank takes it in the same order: all
// ranks have equal bits.
#pragma once

#include "fused/linear_reduce_scatter/partial_tiles.h"

namespace heddle {

struct LinearAllReduceLimits {
  std::int64_t m = 0;  // rows, at most
  std::int64_t n = 0;  // out_features
  std::int64_t tile_rows = 64;
};

struct LinearAllReduceParams {
  Tensor x;       // [M, K of this rank], as `linear` takes it; any memory
  Weight weight;  // [n, K of this rank]; the bias of the sum is in one rank's
  Tensor y;       // [M, n], float32; does not overlap x
};

// As LinearReduceScatter.
class LinearAllReduce {
 public:
  LinearAllReduce(Fabric& fabric, Ranks team, const LinearAllReduceLimits& limits);

  static std::size_t heap_bytes(int world_size, const LinearAllReduceLimits& limits, DeviceKind device);

  void operator()(const LinearAllReduceParams& params, const Lane& lane);

 private:
  struct Call;
  void run(const Call& call, ThreadPool& pool) const;

  PartialTiles partials_;
  TileChannel sums_;  // slots: (the rank that sums, its tile)
};

}  // namespace heddle
