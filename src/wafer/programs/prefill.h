// Prefill on a wafer (WaferLLM, section 4.1, figure 3): a whole prompt at a time.
//
// Activations are L_y E_x: tokens are split along y, features along x. All weights are E_y F_x. Every GEMM is a
// MeshGEMM; scores, Q K^T, are a GEMM-T, so K is never transposed. The sums of norms and softmax run along x.
//
// A head lies in a band of columns and is multiplied there ("locally after grouping by head dimensions", 4.4): all KV
// heads at the same time, the query heads that share one after another. The program computes values head by head over
// the whole mesh, with the columns of other heads zero. It therefore counts the time of one KV head only, but with sums
// along the whole row, and all of the softmax, since a core has scores of every KV head. On fewer columns than KV heads
// it counts as many heads as share a column.
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
