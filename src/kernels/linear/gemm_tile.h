// How many thread blocks a GEMM of many tokens has: what a step in two parts is cut by (schedule/token_split.h).
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// One thread block's part of y. Both positive.
struct GemmTile {
  int tokens = 0;
  int features = 0;
};

// Of the kernel that linear() runs for these operands, whose addresses need not exist, on the lane: on a GPU that of the
// algorithm that cuBLASLt gives, which this loads; 128 x 128 where it does not say. On the CPU the tile of AMX, whatever
// multiplies. Throws as linear() does.
GemmTile gemm_tile(const LinearParams& params, const Lane& lane);

// Of linear_swiglu(); features are those of gate_up.y.
GemmTile gemm_tile(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
