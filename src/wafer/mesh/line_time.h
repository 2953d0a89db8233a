// How long what moves along one line of cores takes, in cycles. Clocks are those of the line's cores, in its own order
// where nothing else is said, and say when a core begins and then when it is done.
#pragma once

#include <span>
#include <vector>

#include "wafer/cost/wafer_cost.h"
#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// The last core's time after 0, 1, ... `steps` shifts of a tile of `words` around the ring, when all begin at 0.
std::vector<double> shift_latencies(const PlmrDevice& device, const Grid& grid, Axis axis, double words, int steps,
                                    WaferSync sync);

// An all-reduce of `values` a core: where a sum is passed on, a stage, which waits as AllReduceOptions' sync says;
// values stream behind the first, one in as many cycles as wafer_cost.h counts for it; the root of a K-tree packs what
// it has before it sends it to all.
void all_reduce(const PlmrDevice& device, std::span<double> clocks, double values, const AllReduceOptions& options);

// An exchange of rows of `words` among cores of a line, when all begin at 0: of each way, a core sends its own rows and
// then passes on what it gets, alpha + beta after it has got it.
double exchange_latency(const PlmrDevice& device, const Grid& grid, Axis axis, double words,
                        std::span<const RowMove> moves);

}  // namespace heddle::mesh
