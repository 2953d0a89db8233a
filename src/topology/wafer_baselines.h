// What the paper compares WaferLLM with (section 7.1), as programs on the same device: compilers of other machines' kinds.
// Each has a placement, an order of steps, paths, memory and routes of its own; fabric/mesh/baselines.h carries them out
// on simulated cores, and what is here is what that comes to.
//
//   t10     takes the cores for a crossbar's (P, L ignored). Core numbers are ports, any two equally near, so that the order in
//           which tiles are handed round is no order of the mesh; and it was made for a thousand cores: what is sent goes
//           through what behaves as one crossbar of so many words a cycle, however large the mesh is. It cuts tiles to a
//           core's memory (M) and relays, so that few routes do (R).
//   ladder  takes all SRAM for one shared memory (P, L, M, R ignored): a tile is asked for where it lives and copied
//           where it is read; the cores of a row are answered one after the other, and all wait for the last.
//
// The K of a GEMM is cut into S = max(width, height) pieces, so that no least common multiple is needed; m = M / height,
// n = N / width, k = K / S, rounded up (t10), or as they are (ladder: what shares a memory is not padded). compute =
// S (ck (k + 2) + e m k n) as MeshGEMM's. line: the longer axis of the sum.
//
//   t10     GEMM        setup + S width height (words of k n) x + compute      x: cycles a word of the crossbar
//           all-reduce  line r
//   ladder  GEMM        S (width (a + v m k) + height (a + v k n)) + compute     a: an access; v: a 32-bit value's cycle
//           all-reduce  line (a' + v' n)
//
// setup, x, r, a, a' and v' are fitted by tools/fit_plmr.py to six visible cells a phase of tables 3 and 4, and taken on any
// device. Both decode on the cores that prefilled, as table 2's columns say: nothing of them moves the model.
#pragma once

#include <cstdint>
#include <string_view>

#include "topology/plmr.h"
#include "topology/wafer_cost.h"

namespace heddle {

enum class WaferMethod : std::uint8_t { waferllm, t10, ladder };

// The letters of P, L, M and R that a method's program does not heed: "P L", "P L M R"; none of WaferLLM's.
std::string_view ignored_properties(WaferMethod);

struct BaselineConstants {
  double t10_setup = 0, t10_word = 0, t10_relay = 0;
  double ladder_access = 0, ladder_sum_access = 0, ladder_sum_value = 0;
};
const BaselineConstants& baseline_constants();

// How far what a baseline's constants say may be off, as a part: of a phase by the constants' spread over the fits that leave
// something out and twice the standard error of a cell; end to end by twice the root mean square of table 2's errors.
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

// As wafer_cost.h's functions of these names; `waferllm` is those. Memory: t10 the tiles that live on a core, one more of
// A and of B on its way, and C; ladder what lives there, and copies of all three. Routes: t10 relays along both axes (4);
// ladder asks and is answered along both (8).
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens, WaferMethod);
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context, WaferMethod,
                            const AllReduceOptions& = {});

}  // namespace heddle
