// What the paper compares WaferLLM with (section 7.1), as programs on the same device: compilers of other machines'
// kinds. Each has a placement, an order of steps, paths, memory and routes of its own; wafer/mesh/baselines.h carries
// them out on simulated cores, and what is here is what that comes to.
//
//   t10     takes the cores for a crossbar's (P, L ignored). Core numbers are ports, any two equally near, so that the
//           order in which tiles are handed round is no order of the mesh; and it was made for a thousand cores: what
//           is sent goes through what behaves as one crossbar, however large the mesh is. It cuts tiles to a
//           core's memory (M) and relays, so that few routes do (R).
//   ladder  takes all SRAM for one shared memory (P, L, M, R ignored): a tile is asked for where it lives and copied
//           where it is read; the cores of a row are answered one after the other, and all wait for the last.
//
// The K of a GEMM is cut into S = max(width, height) pieces, so that no least common multiple is needed; m = M /
// height, n = N / width, k = K / S, rounded up (t10), or as they are (ladder: what shares a memory is not padded).
// compute = S (ck (k + 2) + e m k n) as MeshGEMM's. line: the longer axis of the sum.
//
//   t10     GEMM        x (S width height (words of k n))^0.7 + compute         x: the crossbar's
//           all-reduce  line r
//   ladder  GEMM        S (width a + height (a + q (k n)^1.5)) + compute          a: an access; q: of weights' values
//           all-reduce  line (a' + v' n), with n as it is; a GEMV's weights line q' (k n)^1.5
//
// x, r, a, q, a', v' and q' are fitted by tools/fit_plmr.py to six visible cells a phase of tables 3 and 4 and to the
// text's averages over four models. On other devices r, a and a' grow as a message between neighbours does, two hops,
// their ramps and a stage; x, q, v' and q' as a link's cycles a word; and baseline_scale says how little that may be
// worth. Both decode on the cores that prefilled, as table 2's columns say: nothing of them moves the model.
#pragma once

#include <cstdint>
#include <string_view>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

enum class WaferMethod : std::uint8_t { waferllm, t10, ladder };

// The letters of P, L, M and R that a method's program does not heed: "P L", "P L M R"; none of WaferLLM's.
std::string_view ignored_properties(WaferMethod);

// On `device`, in cycles.
struct BaselineConstants {
  double t10_crossbar = 0, t10_relay = 0;  // of all words to the power 0.7; a core of a sum
  double ladder_access = 0, ladder_weight = 0;
  double ladder_sum_access = 0, ladder_sum_value = 0, ladder_sum_weight = 0;
};
BaselineConstants baseline_constants(const PlmrDevice& device);

// What a step of a GEMM takes: t10 a core's tile of B on its way through the crossbar, whose rate is that of the whole
// GEMM; ladder a core's reads of A and of B, which the cores of a row or column make one after the other.
double t10_message_cycles(const PlmrDevice&, const GemmSize&, WaferMesh);
struct LadderReads {
  double a = 0, b = 0;
};
LadderReads ladder_reads(const PlmrDevice&, const GemmSize&, WaferMesh);
// What a core adds to a GEMV's time, of a line of `mesh.height`: a sum handed on; or a partial sum and a piece of B
// read.
double baseline_gemv_turn(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// How far what a baseline's constants say may be off on the device that they were fitted to, as a part: of a phase by
// what the fits that leave something out say of any of four models, and twice the standard error of a cell; end to end
// by twice the root mean square of table 2's errors.
struct BaselineErrors {
  double prefill = 0, decode = 0, end_to_end = 0;
};
BaselineErrors baseline_errors(WaferMethod);

// The sides of what a core holds of a GEMM, and how many pieces K has. Throws InvalidArgument on sizes < 1.
struct BaselineTiles {
  std::int64_t steps = 0;
  double m = 0, k = 0, n = 0;             // of the largest tile
  std::int64_t a_tiles = 0, b_tiles = 0;  // that live on a core
};
BaselineTiles baseline_tiles(const GemmSize&, WaferMesh);

// As wafer_cost.h's functions of these names; `waferllm` is those. Memory: t10 the tiles that live on a core, one more
// of A and of B on its way, and C; ladder what lives there, and copies of all three. Routes: t10 relays along both axes
// (4); ladder asks and is answered along both (8).
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens, WaferMethod);
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context, WaferMethod,
                            const AllReduceOptions& = {});

}  // namespace heddle
