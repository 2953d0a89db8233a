// What the paper compares WaferLLM with (section 7.1), as cost programs on the same device: compilers of other machines'
// kinds, which run the same GEMMs and GEMVs but move what they need as if they were there.
//
//   t10     takes the cores for a crossbar's: any two are equally far. It cuts tiles to a core's memory (M) and shifts
//           them in a ring, so that few routes do (R); that ring's order is not the mesh's. It ignores distance (L) and
//           what millions of cores cost one another on shared wires (P).
//   ladder  takes all SRAM for one shared memory: each tile is asked for and answered. It ignores P, L, M (tiles are
//           copied where they are read) and R (no route is planned).
//
// Both let every tile of each of the P steps of a GEMM pass through software on the P cores of its row or column, and
// every sum of an all-reduce likewise, a core taking r + w words:
//
//   GEMM        P (width (r + w a) + height (r + w b)) + compute, a and b the words of a step's tiles
//   all-reduce  P (r + w n/2)
//
// r and w of the two kinds and baselines are fitted by tools/fit_plmr.py to six visible cells each of tables 3 and 4, and
// taken on any device: 53.6 and 2.3 for t10's GEMMs, where r comes out as a call of WaferLLM's own, 433 and 1.9 for
// ladder's; 13.9 and 0, 179 and 45 for all-reduces. Why a stage takes so long there is not known; the order in P is.
#pragma once

#include <cstdint>

#include "topology/plmr.h"
#include "topology/wafer_cost.h"

namespace heddle {

enum class WaferMethod : std::uint8_t { waferllm, t10, ladder };

// As wafer_cost.h's functions of these names; `waferllm` is those. Memory and routes are WaferLLM's, and checked as
// there, although the baselines need more: the paper ran them on the same meshes.
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens, WaferMethod);
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context, WaferMethod,
                            const AllReduceOptions& = {});

}  // namespace heddle
