// Programs of the mesh, timed: what wafer/cost/wafer_cost.h says in closed form, as the programs themselves take it on
// simulated cores. Cycles are the last core's; memory and routes are counted by the run. Throws what wafer_cost.h
// throws, and InputError with core, phase, need and budget where a core's memory or routes do not suffice.
//
// The simulation charges what the closed forms charge (calls, multiply-accumulates, words, hops, stages); it adds what
// they leave out: how delays of different cores meet, and ends of lines that differ from the middle.
#pragma once

#include <string>
#include <vector>

#include "wafer/cost/wafer_cost.h"
#include "wafer/mesh/grid.h"

namespace heddle::mesh {

// breakdown: "compute" (of one core), "alignment" where there is one, and "communication": all that is left.
WaferCost simulate_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferGemm, WaferSync = WaferSync::dataflow);

// breakdown: "hops", "routing stages", "words", as all_reduce_cost's.
WaferCost simulate_all_reduce(const PlmrDevice&, int line, std::int64_t n, const AllReduceOptions& = {});

// y [n] = x [k] B [k, n], with k along y. breakdown: "compute", then the all-reduce's.
WaferCost simulate_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, const AllReduceOptions& = {});

// The nine GEMMs of a layer of prefill, named as prefill_layer_cost names them, which also counts the memory.
WaferCost simulate_prefill_layer(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens,
                                 WaferSync = WaferSync::dataflow);

// What 5.1 and 6.1 state of each program, counted by running it on a mesh of `line` x `line` cores that keeps accounts
// only, and from its schedule.
struct ComplianceRow {
  std::string program;
  int paths = 0;            // that begin, end or pass at the busiest core of a line, did every way have its own
  int routes = 0;           // that the program takes of a core, on both axes, relaying where paths are too many
  double hops = 0;          // of the critical path: a step's of a GEMM, all of an all-reduce
  double stages = 0;        // routing stages on it
  double memory_tiles = 0;  // of a core: tiles of A, B and C; of an all-reduce: vectors
  std::string complies;     // what of L, M and R it keeps: "L M R", "M R", ...
};
// Each is counted on the line and on one of twice the length. L: hops and stages of a step that do not grow. M: memory
// that does not. R: paths within the free routes.
std::vector<ComplianceRow> gemm_compliance(const PlmrDevice&, int line);
// L: stages that do not double with the line. M: as above. R: routes within the free ones.
std::vector<ComplianceRow> all_reduce_compliance(const PlmrDevice&, int line, int k_tree_phases = 2);

}  // namespace heddle::mesh
