// Analytical model of the paper's baselines (section 7.1): programs that compilers for other kinds of machines would
// produce, on the same device. wafer/mesh/baselines.h runs them on simulated cores, with their placement, order of
// steps, paths, memory and routes.
//
//   t10     treats the cores as ports of a crossbar (ignores P, L). Any two ports are equally near, so the order in
//           which tiles circulate does not follow the mesh. T10 was made for about a thousand cores: all traffic shares
//           what behaves as one crossbar, whatever the size of the mesh. Tiles fit a core's memory (M), and relaying
//           needs few routes (R).
//   ladder  treats all SRAM as one shared memory (ignores P, L, M, R). A core reads a tile from its owner and keeps a
//           copy. An owner serves the cores of a row one after the other, and all wait for the last.
//
// K of a GEMM is cut into S = max(width, height) pieces, so no least common multiple is needed. README.md has the
// formulas, whose constants tools/fit_plmr.py fits; docs/notes/wafer.md describes the fit and the scaling to
// other devices. Both baselines decode on the cores that prefilled, as table 2 says: they never move the model.
#pragma once

#include <cstdint>
#include <string_view>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

enum class WaferMethod : std::uint8_t { waferllm, t10, ladder };

// The letters of P, L, M and R that a method ignores by the paper (section 3.2): "P L", "P L M R"; empty for WaferLLM.
// What its program here keeps is counted (baseline_compliance).
std::string_view ignored_properties(WaferMethod);

// In cycles on `device`.
struct BaselineConstants {
  double t10_crossbar = 0, t10_relay = 0;  // of all words to the power 0.7; per core of a sum
  double ladder_access = 0, ladder_weight = 0;
  double ladder_sum_access = 0, ladder_sum_value = 0, ladder_sum_weight = 0;
  double t10_crossbar_power = 0, ladder_weight_power = 0;  // chosen, not fitted
};
BaselineConstants baseline_constants(const PlmrDevice& device);

// Cycles of a step of a GEMM. t10: a core's tile of B through the crossbar, at the rate of the whole GEMM. ladder: a
// core's read of A and of B; the cores of a row or column read one after the other.
double t10_message_cycles(const PlmrDevice&, const GemmSize&, WaferMesh);
struct LadderReads {
  double a = 0, b = 0;
};
LadderReads ladder_reads(const PlmrDevice&, const GemmSize&, WaferMesh);
// Cycles that each core of a line of `mesh.height` adds to a GEMV. t10: handing on a sum. ladder: reading a partial sum
// and a piece of B.
double baseline_gemv_turn(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// Relative uncertainty of the baselines on the device they were fitted to. For a phase: the spread over the
// leave-one-out fits for any of four models, and twice the standard error of a cell. End to end: model_error.h.
struct BaselineErrors {
  double prefill = 0, decode = 0;
};
BaselineErrors baseline_errors(WaferMethod);

// A core's tile sizes in a GEMM, and the number of pieces of K. Throws InvalidArgument on sizes < 1.
struct BaselineTiles {
  std::int64_t steps = 0;
  double m = 0, k = 0, n = 0;             // of the largest tile
  std::int64_t a_tiles = 0, b_tiles = 0;  // that a core owns
};
BaselineTiles baseline_tiles(const GemmSize&, WaferMesh);

// As wafer_cost.h's functions of these names, which `waferllm` calls. Memory: t10 holds the tiles a core owns, one more
// of A and of B in transit, and C; ladder holds the tiles a core owns, and copies of all three. Routes: t10 relays
// along both axes (4); ladder sends requests and replies along both (8).
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens, WaferMethod);
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context, WaferMethod,
                            const AllReduceOptions& = {});

}  // namespace heddle
