// y = this rank's rows of the sum over ranks of x W^T: a GEMM whose tiles go to the rank that sums them as soon as they
// are computed, in place of a GEMM and a reduce-scatter. It is the push of "Eliminating Multi-GPU Performance Taxes"
// (Alg. 2, 4) on the producing side of a GEMM, which the paper names as the next step (section 6.2).
//
// Sums are in float32 and in rank order. A rank's product of a tile is stored to the summing rank's inbox, in symmetric
// memory, by the GEMM itself; of few rows by packets, behind a GEMM of kernels/linear. On a GPU the first call of more than 64
// rows loads cuBLASLt, so it comes before a graph capture.
#pragma once

#include "fused/linear_reduce_scatter/partial_tiles.h"

namespace heddle {

struct LinearReduceScatterParams {
  Shards rows;    // of y, by the rank that keeps them; of any length up to the limit; the same on every rank
  Tensor x;       // [M, K of this rank], as `linear` takes it; any memory
  Weight weight;  // [n, K of this rank]; the bias of the sum is in one rank's
  Tensor y;  // [rows.count(rank), n], float32 or x's dtype, to which sums are then rounded once; does not overlap x
};

// One for each rank and team; owns the symmetric memory. The ranks of a team make the same calls in the same order; calls
// follow each other without a barrier. It outlives the work that is enqueued on it.
class LinearReduceScatter {
 public:
  // Collective, and throws, as PartialTiles does.
  LinearReduceScatter(Fabric& fabric, Ranks team, const PartialLimits& limits);

  static std::size_t heap_bytes(int world_size, const PartialLimits& limits, DeviceKind device) {
    return PartialTiles::heap_bytes(world_size, limits, device);
  }

  // Enqueues. Throws InvalidArgument unless params fit the limits and `linear`. A rank that stops is named by
  // Fabric::synchronize (Timeout); y is then undefined.
  void operator()(const LinearReduceScatterParams& params, const Lane& lane);

 private:
  PartialTiles partials_;
};

}  // namespace heddle
