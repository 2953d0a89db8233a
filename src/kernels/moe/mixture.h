// A mixture of experts for the few tokens of a decode step, on a GPU, in two kernels that read each weight once:
//
//   y[t] = down_s gate(x[t]; gate_up_s) + sum over the experts e of token t of down_e (w[t][e] * gate(x[t]; gate_up_e))
//
// with gate(x; W) = silu(g) * u of W x = [g; u], the shared experts s as one, and the experts and weights w of route.h.
// Sums are float32: the shared experts' first, then those of the experts by number. What gate makes is rounded to x's
// dtype, times its weight, and y is rounded once. A call repeats bit for bit, and a token's bits depend on neither its
// neighbours nor the number of SMs, as long as all weights are finite.
//
// Its CPU twin is the operators that it replaces: route, group_rows, grouped_swiglu, grouped_linear, linear of the shared experts and
// combine_experts (layers/experts.cpp).
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/route.h"

namespace heddle {

struct MixtureParams {
  Tensor x;             // [num_tokens, hidden]
  Tensor logits;        // [num_tokens, num_experts], float32, of the router
  const float* bias{};  // as route() takes it
  RouteRule rule;
  WeightGroup gate_up;      // [num_experts]: gate and up stacked, [2 * intermediate, hidden]
  WeightGroup down;         // [num_experts]: [hidden, intermediate]
  Weight shared_gate_up;    // [2 * shared intermediate, hidden]; without rows: no shared experts
  Weight shared_down;       // [hidden, shared intermediate]
  std::int32_t* experts{};  // [num_tokens, top_k], scratch
  Tensor gated;             // [num_tokens * top_k, intermediate], scratch
  Tensor shared_gated;      // [num_tokens, shared intermediate], scratch
  Tensor y;                 // [num_tokens, hidden], overlaps nothing else

  bool has_shared() const { return shared_gate_up.out_features > 0; }
};

// The most tokens, and of how many experts.
inline constexpr std::int64_t kMixtureTokens = 16;
inline constexpr int kMixtureExperts = 256;

// Whether mixture() takes these operands: on a GPU, up to kMixtureTokens tokens and kMixtureExperts experts; x, all weights
// and scratch of one dtype of 16 bits, without biases; y of that dtype or float32; widths multiples of 8, and rows
// aligned to 16 bytes.
bool mixture_takes(const MixtureParams& params, Device device);

// Enqueues on the lane's stream. A row of logits with NaN or +infinity makes its token's y NaN. Throws InvalidArgument
// unless shapes fit and mixture_takes() them.
void mixture(const MixtureParams& params, const Lane& lane);

}  // namespace heddle
