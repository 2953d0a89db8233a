// y = x W^T + bias: y[t][r] = dot(x[t], W[r]) + bias[r]. On the CPU the dot product of README.md, whatever the batch.
// Weights keep their dtype in memory and are widened as they are read.
//
// On a GPU sums are float32 in an order that shape and dtypes fix (and, above kLinearSmallRows rows, tune_linear()'s
// choice): the same bits on every run, and up to there in every batch. Products are of x and W as given, float32 as
// float32 (no TF32); y is rounded once, but above kLinearSmallRows rows a bias is rounded to a narrow y's dtype before it
// is added, and the sum may be. Fast where x has the weight's dtype, in_features is a multiple of 8 and W and the rows of
// x are aligned to 16 bytes; right for everything else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/weight.h"

namespace heddle {

struct LinearParams {
  Tensor x;       // [num_tokens, in_features], float32; on the CPU or bfloat16, if the weight is; on a GPU any dtype
  Weight weight;  // [out_features, in_features]; on a GPU one run of memory: each block begins where the last one ends
  Tensor y;       // [num_tokens, out_features], float32; on a GPU any dtype; apart from x

  // On a GPU, for more than kLinearSmallRows tokens: scratch aligned to 256 bytes that no other stream uses meanwhile.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;  // at least linear_workspace_bytes()
};

// Up to here a GPU's product reads W once at the memory's rate and needs no workspace.
inline constexpr std::int64_t kLinearSmallRows = 16;

// What a product of any shape wants as workspace on `device`; 0 on the CPU.
std::size_t linear_workspace_bytes(Device device);

// Enqueues on `stream`. On a GPU it neither allocates nor synchronizes, but for the first call with more than
// kLinearSmallRows tokens on a device, which loads cuBLASLt: make it, or tune_linear(), before a graph is captured.
// Throws InvalidArgument unless shapes and dtypes fit, Failure when the GPU or cuBLASLt refuses.
void linear(const LinearParams& params, Stream& stream);

// The checks of linear(): throws InvalidArgument.
void require_linear(const LinearParams& params, const Stream& stream);

// Computes the product like linear(), and on a GPU chooses beforehand, by timing it on `stream`, how this process is to
// compute all later ones of this shape, these dtypes and this alignment there. Synchronizes; not while a graph is captured.
void tune_linear(const LinearParams& params, Stream& stream);

}  // namespace heddle
