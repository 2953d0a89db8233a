// Prefill on a wafer (WaferLLM, section 4.1, figure 3): a whole prompt at a time.
//
// Activations are L_y E_x: tokens are split along y, features along x. All weights are E_y F_x. Every GEMM is a
// MeshGEMM; scores, Q K^T, are a GEMM-T, so K is never transposed. The sums of norms and softmax run along x.
//
// Weights are placed layer by layer, aligned for the compute-shift loop. A mesh that is not square has the places of
// the least common multiple (5.4).
#pragma once

#include <cstdint>
#include <span>

#include "wafer/programs/decode_region.h"

namespace heddle {

inline constexpr int kMaxPrefillSide = 1024;  // places

// Throws InputError where the mesh has more places than kMaxPrefillSide a side.
void check_prefill_mesh(WaferMesh cores);

// Computes the prompt. Throws InputError where the mesh has more places than kMaxPrefillSide a side, and with core,
// phase, need and budget where a core of the program's device is too small; InvalidArgument when there are no tokens.
WaferPrompt wafer_prefill(const WaferWeights& weights, WaferMesh cores, std::span<const std::int32_t> tokens,
                          const WaferProgram& program, ThreadPool& pool);

}  // namespace heddle
