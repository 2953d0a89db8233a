// GEMM of a decode batch, 17 to 64 tokens: linear_sm90_batch.cuh.
#pragma once

#include <cstdint>
#include <span>

#include "base/lane.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// The most tokens that it takes: what a thread's sums and the ring of x are sized for.
inline constexpr std::int64_t kLinearBatchRows = 64;

// How a GEMM runs. The order of a sum depends on `cluster` and `steps_apart`.
struct BatchPlan {
  int cluster;                 // blocks that share a tile's k: 1 or 2
  int tile_rows;               // of W that a block's accumulators hold: 64 or 128
  int steps_apart = 0;         // of neighbouring tiles' first steps along k
  int bytes_ahead = 64 << 10;  // of W on their way while the ring is filled for the first time
};

// What linear() takes for this shape, whatever the lane. Measured on one H200.
BatchPlan batch_plan(std::int64_t num_tokens, std::int64_t out_features);

// All plans of linear_batch() and of linear_swiglu_batch(), each right for any operands.
std::span<const BatchPlan> batch_plans();
std::span<const BatchPlan> swiglu_batch_plans();

// Whether linear_batch() takes these operands: 17 to kLinearBatchRows tokens of W's 16-bit dtype, y of the same dtype
// or float32, in_features a multiple of 8, and x, its rows and W aligned to 16 bytes. require_linear() has accepted
// them.
bool takes_batch(const LinearParams& params);

// Whether linear() runs it: operands that it takes, on a lane that is sure to hold its clusters.
bool is_for_batch(const LinearParams& params, const Lane& lane);

// Whether linear_swiglu() runs linear_swiglu_batch(): operands that it takes, those of takes_batch() with a y of W's
// dtype.
bool is_for_swiglu_batch(const LinearSwigluParams& params);

// Enqueue on the lane's CUDA stream. With a plan: for tests and benches.
void linear_batch(const LinearParams& params, const Lane& lane);
void linear_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane);
void linear_swiglu_batch(const LinearSwigluParams& params, const Lane& lane);
void linear_swiglu_batch(const LinearSwigluParams& params, const BatchPlan& plan, const Lane& lane);

}  // namespace heddle
