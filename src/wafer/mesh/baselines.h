// Runs the baselines of wafer/cost/wafer_baselines.h on simulated cores. They synchronise in their own way: dataflow,
// rendezvous and barrier give the same results.
//
//   t10     Compute phases alternate with exchange phases. In an exchange each core takes the next tile of A from the
//           previous crossbar port along x, and of B along y. The tiles of B are the larger load; they pass the
//           crossbar one after the other, in port order.
//   ladder  A step is two reads and a tile GEMM. Every core of a row reads the row's piece of A from its owner, which
//           serves the reads one after the other; every core of a column then reads B likewise. A read ends for all
//           cores when the last one has its copy.
#pragma once

#include <vector>

#include "wafer/cost/wafer_baselines.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {

// Throw as simulate_gemm does, and InvalidArgument for `waferllm`. breakdown: as the analytical model's.
WaferCost simulate_baseline_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost simulate_baseline_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// Position of crossbar port `port` on a line of `cores` cores.
int crossbar_place(int cores, int port);

// For the baselines' GEMMs: the paths a core would need if each transfer had its own; hops and stages of the longest
// path.
std::vector<ComplianceRow> baseline_compliance(const PlmrDevice&, int line);

}  // namespace heddle::mesh
