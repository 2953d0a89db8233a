// The baselines that wafer/cost/wafer_baselines.h costs, run on simulated cores: placement of tiles, transfers of each
// step, the order in which shared resources serve cores, and the memory and routes that a core needs.
//
//   t10     Compute phases alternate with exchange phases, as on the machine T10 was made for. Cores are numbered by
//           crossbar port: port p of a line of n cores lies at (p stride) mod n, where stride is the number nearest to
//           0.618 n that is coprime with n. (On a crossbar all cores are equally near, so any order is as good.) In an
//           exchange each core takes the next tile of A from the previous port along x, and of B along y. The tiles of
//           B are the larger load; they pass the crossbar one after the other, in port order.
//   ladder  A step is two reads and a tile GEMM. Every core of a row reads the row's piece of A from its owner, which
//           serves the reads one after the other; every core of a column then reads B likewise. A read ends for all
//           cores when the last one has its copy, as in a grid of threads that share a memory.
//
// The programs have their own synchronisation: dataflow, rendezvous and barrier give the same results.
#pragma once

#include <vector>

#include "wafer/cost/wafer_baselines.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {

// Throw as simulate_gemm does, and InvalidArgument for `waferllm`. breakdown: as the analytical model's.
WaferCost simulate_baseline_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost simulate_baseline_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// Position of port `port` on a line of `cores`.
int crossbar_place(int cores, int port);

// For the baselines' GEMMs: the paths a core would need if each transfer had its own; hops and stages of the longest
// path.
std::vector<ComplianceRow> baseline_compliance(const PlmrDevice&, int line);

}  // namespace heddle::mesh
