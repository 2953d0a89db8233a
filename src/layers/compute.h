// The dtypes that a model's layers compute in.
#pragma once

#include <span>

#include "base/device.h"
#include "base/dtype.h"
#include "base/weight.h"

namespace heddle {

// Whether the activations of matmuls with weights are rounded first. It depends on this setting only.
enum class Compute {
  // To the dtype of the matrices, if all have the same one: on the CPU only bfloat16, on a GPU float16, too. As PyTorch
  // does; sums are in float32.
  automatic,
  float32,  // never
};

// The residual and logits are float32.
struct LayerDTypes {
  DType activations = DType::float32;    // of what is multiplied with weights
  DType intermediates = DType::float32;  // of what matrices make within a block
  DType deltas = DType::float32;         // of what a block leaves to be added to the residual
};

// For matrices of the dtype `weights`.
LayerDTypes layer_dtypes(DType weights, Device device, Compute compute);

// The dtype of all of them; float32 where they differ.
DType common_dtype(std::span<const Weight> matrices);

}  // namespace heddle
