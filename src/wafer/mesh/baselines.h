// The programs that wafer/cost/wafer_baselines.h costs, carried out on simulated cores: where a core's tiles live, who
// sends to whom in each step, in which order what they share serves them, and what that takes of a core.
//
//   t10     Compute phases and exchange phases take turns, as on the machine that it was made for. Core numbers are a
//           crossbar's ports: port p of a line of n cores lies at (p stride) mod n, stride being the number next to
//           0.618 n that has no factor in common with n: an order as good as any where all are equally near. In an
//           exchange each core takes the next tile of A from the port before it along x, and of B along y; those of B
//           are the larger load, and pass the crossbar one after the other, in the order of their ports.
//   ladder  A step is two reads and a product; every core of a row asks the core where the row's piece of A lives,
//           which answers in turn; then every core of a column likewise for B. A read ends for all when the last has
//           its copy: as threads of a grid that share a memory wait for each other.
//
// Synchronisation is the programs' own, whatever the caller would have: results for dataflow, rendezvous and barrier
// are one.
#pragma once

#include <vector>

#include "wafer/cost/wafer_baselines.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {

// Throw as simulate_gemm does; InvalidArgument for `waferllm`. breakdown: as the closed form's.
WaferCost simulate_baseline_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost simulate_baseline_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// Where port `port` of a line of `cores` lies.
int crossbar_place(int cores, int port);

// Of their GEMMs: paths that a core would need had each way its own; hops and stages of the longest way.
std::vector<ComplianceRow> baseline_compliance(const PlmrDevice&, int line);

}  // namespace heddle::mesh
