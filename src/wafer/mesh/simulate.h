// Times of mesh programs, measured by running them on simulated cores; wafer/cost/wafer_cost.h is the analytical model
// of the same programs. Cycles are those of the last core; the run counts memory and routes. Throws what wafer_cost.h
// throws, and InputError with core, phase, need and budget where a core's memory or routes do not suffice.
//
// The simulation charges what the analytical model charges (calls, multiply-accumulates, words, hops, stages). It adds
// how delays of different cores combine, and the ends of lines, which differ from the middle. A program runs again where
// operations, calls and stages cost nothing: those cycles are "simulated", and what the fitted costs add is "analytical".
#pragma once

#include <string>
#include <vector>

#include "wafer/cost/wafer_cost.h"
#include "wafer/mesh/grid.h"

namespace heddle::mesh {

// breakdown: "hops and words" (simulated), whether or not compute hides them; and what is beyond: "operations and calls",
// and "routing stages" where there are any (both analytical).
WaferCost simulate_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferGemm, WaferSync = WaferSync::dataflow);
// Its cycles alone: one run of the two or three.
double simulate_gemm_cycles(const PlmrDevice&, const GemmSize&, WaferMesh, WaferGemm, WaferSync = WaferSync::dataflow);

// breakdown: "hops", "routing stages", "words", as all_reduce_cost's. Stages are analytical.
WaferCost simulate_all_reduce(const PlmrDevice&, int line, std::int64_t n, const AllReduceOptions& = {});

// y [n] = x [k] B [k, n], with k along y, for each vector of a batch. breakdown: "compute", then the all-reduce's.
WaferCost simulate_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, const AllReduceOptions& = {},
                        int batch = 1);

// Cycles of the nine GEMMs of a layer of prefill.
double simulate_prefill_layer(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens,
                              WaferSync = WaferSync::dataflow);

// The properties that sections 5.1 and 6.1 state of each program, counted by running it on a mesh of `line` x `line`
// cores that only counts, and from its schedule.
struct ComplianceRow {
  std::string program;
  int paths = 0;            // that begin, end or pass at the busiest core of a line, if every transfer had its own
  int routes = 0;           // that the program needs on a core, on both axes; relays where paths are too many
  double hops = 0;          // of the critical path: of one GEMM step, or of the whole all-reduce
  double stages = 0;        // routing stages on it
  double memory_tiles = 0;  // per core: tiles of A, B and C; for an all-reduce: vectors
  std::string complies;     // which of L, M and R hold: "L M R", "M R", ...
};
// "L M R" of the properties that hold.
std::string letters_of(bool latency, bool memory, bool routes);
// Each is counted on the line and on one of twice the length. L: hops and stages of a step do not grow. M: memory does
// not grow. R: paths fit into the free routes.
std::vector<ComplianceRow> gemm_compliance(const PlmrDevice&, int line);
// L: stages grow less than the line. M: as above. R: routes fit into the free ones.
std::vector<ComplianceRow> all_reduce_compliance(const PlmrDevice&, int line, int k_tree_phases = 2);

}  // namespace heddle::mesh
