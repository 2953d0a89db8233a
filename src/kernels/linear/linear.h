// y = x W^T + bias: y[t][r] = dot(x[t], W[r]) + bias[r]. Weights keep their dtype in memory and are widened as they are
// read. On the CPU dot is the dot product of README.md.
//
// On a GPU, dot multiplies x and W in their own dtypes (float32 without TF32) and accumulates in float32. The bias is
// added in float32, and y is rounded once. A call repeats bit for bit. Up to kLinearSmallRows rows, the order of a sum
// depends on shape, dtypes and alignment only; up to 64 rows on their number, too, and on whether the lane holds
// clusters (linear_sm90_batch.h); above, on the algorithm of cuBLASLt's heuristic for this call, GPU and lane. The GEMM
// is fast where x has the weight's dtype, in_features is a multiple of 8, and W and the rows of x are 16-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

// Which GEMM of a step this is. On a GPU it selects tiles, shared memory and, above kLinearSmallRows rows, cuBLASLt's
// algorithm. Any role is right for any operands.
enum class LinearRole : std::uint8_t {
  alone,             // not part of a step: tests, measurements
  qkv,               // queries, keys and values; attention follows
  attention_output,  // follows attention
  gate_up,
  down,
  logits,
};

// "qkv", "output", "gate_up", "down", "logits" as in bench's tables; "alone".
std::string_view name_of(LinearRole role);

struct LinearParams {
  Tensor x;       // [num_tokens, in_features], float32; on the CPU also bfloat16 if the weight is; on a GPU any dtype
  Weight weight;  // [out_features, in_features]; on a GPU contiguous: each block begins where the last one ends
  Tensor y;       // [num_tokens, out_features], float32; on a GPU any dtype; does not overlap x
  LinearRole role = LinearRole::alone;
};

// The most rows for which a GPU reads W once at memory bandwidth and needs no workspace.
inline constexpr std::int64_t kLinearSmallRows = 16;

// The workspace that a GEMM of any shape needs on `device`, aligned to 256 bytes; 0 on the CPU.
std::size_t linear_workspace_bytes(Device device);

// Enqueues on the lane's stream. Kernels use at most the lane's SMs, but at least two where they run in clusters.
// cuBLASLt takes the number as a target only: its older kernels, which it has for float32 and for rows that are not
// aligned to 16 bytes, put a block a tile on whatever SMs are free. They have no clusters, so the lane's SMs are enough
// for them to make progress. Neither our kernels nor cuBLASLt's allocate or synchronize on a GPU, with one exception:
// the first call with more than
// kLinearSmallRows rows on a device loads cuBLASLt, so it must come before a graph capture. Throws InvalidArgument
// unless shapes and dtypes fit, Failure when the GPU or cuBLASLt reports an error.
void linear(const LinearParams& params, const Lane& lane);

// The checks of linear(): throws InvalidArgument.
void require_linear(const LinearParams& params, const Lane& lane);

}  // namespace heddle
