// GEMM of a decode batch, 17 to 64 tokens: linear_sm90_batch.cuh.
#pragma once

#include <cstdint>
#include <span>

#include "base/lane.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// The most tokens that it takes. Above, x no longer fits a ring's slots beside W, and cuBLASLt reads W at the memory's rate.
inline constexpr std::int64_t kLinearBatchRows = 64;

// How a GEMM runs. The order of a sum depends on `cluster` and on tile_rows > 128 (a step along k is then shorter).
struct BatchPlan {
  int cluster;              // blocks that share a tile's k: 1, 2 or 4
  int tile_rows;            // of W that a block's accumulators hold: 64, 128 or 256
  bool line_pairs = false;  // whether L2 loads two neighbouring lines of W at once
};

// What linear() takes for this shape, whatever the GPU and lane; measured on one H200.
BatchPlan batch_plan(std::int64_t num_tokens, std::int64_t outputs, int rows_of_output);

// All plans that linear_batch() runs; linear_swiglu_batch() those with tiles of 128 rows or more.
std::span<const BatchPlan> batch_plans();

// Whether linear_batch() takes these operands: 17 to kLinearBatchRows tokens of W's 16-bit dtype, y of the same dtype or
// float32, in_features a multiple of 8, and x, its rows and W aligned to 16 bytes. require_linear() has accepted them.
bool takes_batch(const LinearParams& params);
bool takes_swiglu_batch(const LinearSwigluParams& params);

// Whether linear() and linear_swiglu() do it so: operands that it takes, on a lane that is sure to hold its clusters.
bool is_for_batch(const LinearParams& params, const Lane& lane);
bool is_for_swiglu_batch(const LinearSwigluParams& params);

// Enqueue on the lane's CUDA stream. The second one is for tests and benches.
void linear_batch(const LinearParams& params, const Lane& lane);
void linear_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane);
void linear_swiglu_batch(const LinearSwigluParams& params, const Lane& lane);
void linear_swiglu_batch(const LinearSwigluParams& params, const BatchPlan& plan, const Lane& lane);

}  // namespace heddle
