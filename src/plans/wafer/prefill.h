// Prefill on a wafer (WaferLLM, section 4.1, figure 3): a whole prompt at a time.
//
// Activations are L_y E_x: tokens are cut along y, features along x, and so are all weights, E_y F_x. Every product is a
// MeshGEMM; scores, Q K^T, are a GEMM-T, so K is never transposed; a norm's and the softmax's sums run along x. Heads are
// taken one after the other: a head's queries are those columns alone, the others zero, which a core multiplies like
// others; so attention takes as many times as long as the model has heads as in topology/wafer_cost.h.
//
// Weights are placed layer by layer, aligned for the compute-shift loop. On a mesh that is not square the places are
// those of the least common multiple (5.4).
#pragma once

#include <cstdint>
#include <span>

#include "plans/wafer/decode_region.h"

namespace heddle {

inline constexpr int kMaxPrefillSide = 1024;  // of places

// Throws InputError where the mesh has more places than kMaxPrefillSide a side.
void check_prefill_mesh(WaferMesh cores);

// Computes the prompt. Throws InputError where the mesh has more places than kMaxPrefillSide a side, and with core, phase,
// need and budget where a core of the program's device has too little; InvalidArgument when
// there are no tokens.
WaferPrompt wafer_prefill(const WaferWeights& weights, WaferMesh cores, std::span<const std::int32_t> tokens,
                          const WaferProgram& program, ThreadPool& pool);

}  // namespace heddle
