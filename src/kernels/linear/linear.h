// y = x W^T + bias: y[t][r] = dot(x[t], W[r]) + bias[r]. On the CPU the dot product of README.md, whatever the batch.
// Weights keep their dtype in memory and are widened as they are read.
//
// On a GPU sums are float32 and products are of x and W as given, float32 as float32 (no TF32). The bias is added to
// the sum in float32, and y is rounded once. The same call repeats bit for bit. Up to kLinearSmallRows rows the order
// of a sum depends on shape, dtypes and alignment alone: not on the other rows, the role, the number of SMs or the
// GPU's model. Above, it is that of the algorithm that cuBLASLt's heuristic names for shape, dtypes, strides,
// alignment, role and the lane's SMs on this GPU; nothing is timed, so every caller in every process gets the same one.
// Fast where x has the weight's dtype, in_features is a multiple of 8 and W and the rows of x are aligned to 16 bytes;
// right for everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

// The place of a product in a model's step. On a GPU it tells a kernel what runs before and after it, from which tiles,
// shared memory and, above kLinearSmallRows rows, cuBLASLt's algorithm follow. Any role is right for any operands.
enum class LinearRole : std::uint8_t {
  alone,             // of no step: a test's, or a measurement's
  qkv,               // queries, keys and values; attention follows
  attention_output,  // follows attention
  gate_up,
  down,
  logits,
};

// "qkv", "output", "gate_up", "down", "logits": as benches and their peers name it; "alone".
std::string_view name_of(LinearRole role);

struct LinearParams {
  Tensor x;       // [num_tokens, in_features], float32; on the CPU or bfloat16, if the weight is; on a GPU any dtype
  Weight weight;  // [out_features, in_features]; on a GPU one run of memory: each block begins where the last one ends
  Tensor y;       // [num_tokens, out_features], float32; on a GPU any dtype; apart from x
  LinearRole role = LinearRole::alone;
};

// Up to here a GPU's product reads W once at the memory's rate and needs no workspace.
inline constexpr std::int64_t kLinearSmallRows = 16;

// What a product of any shape wants as workspace on `device`, aligned to 256 bytes; 0 on the CPU.
std::size_t linear_workspace_bytes(Device device);

// Enqueues on the lane's stream; up to kLinearSmallRows rows the lane needs no workspace. Kernels hold no more than the
// lane's SMs, but at least two where a cluster multiplies; cuBLASLt is asked for that and promises nothing. On a GPU it
// neither allocates nor synchronizes, but for the first call with more than
// kLinearSmallRows tokens on a device, which loads cuBLASLt: make it before a graph is captured.
// Throws InvalidArgument unless shapes and dtypes fit, Failure when the GPU or cuBLASLt refuses.
void linear(const LinearParams& params, const Lane& lane);

// The checks of linear(): throws InvalidArgument.
void require_linear(const LinearParams& params, const Lane& lane);

}  // namespace heddle
