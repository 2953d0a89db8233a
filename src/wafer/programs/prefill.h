// Prefill on a wafer (WaferLLM, section 4.1, figure 3): a whole prompt at a time.
//
// Activations are L_y E_x: tokens are cut along y, features along x, and so are all weights, E_y F_x. Every product is
// a MeshGEMM; scores, Q K^T, are a GEMM-T, so K is never transposed; a norm's and the softmax's sums run along x.
//
// Heads lie in bands of columns, and their products are the bands' own ("locally after grouping by head dimensions",
// 4.4): all KV heads at a time, one after the other the heads that share one. Values are computed head by head over the
// whole mesh, where other heads' columns are zeros; of the KV heads, which are at work side by side, one is counted, as
// if its sums went along all of a row, and all of the softmax, whose scores a core has of every KV head. On fewer
// columns than KV heads as many are counted as share a column.
//
// Weights are placed layer by layer, aligned for the compute-shift loop. On a mesh that is not square the places are
// those of the least common multiple (5.4).
#pragma once

#include <cstdint>
#include <span>

#include "wafer/programs/decode_region.h"

namespace heddle {

inline constexpr int kMaxPrefillSide = 1024;  // of places

// Throws InputError where the mesh has more places than kMaxPrefillSide a side.
void check_prefill_mesh(WaferMesh cores);

// Computes the prompt. Throws InputError where the mesh has more places than kMaxPrefillSide a side, and with core,
// phase, need and budget where a core of the program's device has too little; InvalidArgument when
// there are no tokens.
WaferPrompt wafer_prefill(const WaferWeights& weights, WaferMesh cores, std::span<const std::int32_t> tokens,
                          const WaferProgram& program, ThreadPool& pool);

}  // namespace heddle
