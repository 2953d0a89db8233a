// Times of transfers along one line of cores, in cycles. `clocks` are those of the line's cores, in line order unless
// stated otherwise: on entry when a core begins, on return when it is done.
#pragma once

#include <span>
#include <vector>

#include "wafer/cost/wafer_cost.h"
#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// Time of the last core after 0, 1, ... `steps` shifts of a tile of `words` around the ring; all begin at 0.
std::vector<double> shift_latencies(const PlmrDevice& device, const Grid& grid, Axis axis, double words, int steps,
                                    WaferSync sync);

// An all-reduce of `values` per core. Each hand-over of a sum is a stage, which waits as AllReduceOptions' sync says.
// Values stream behind the first at the rate that wafer_cost.h charges. The root of a K-tree packs its values before
// the multicast.
void all_reduce(const PlmrDevice& device, std::span<double> clocks, double values, const AllReduceOptions& options);

// An exchange of rows of `words` among the cores of a line; all begin at 0. In each direction a core sends its own rows
// first, then forwards what it receives, alpha + beta after it arrived.
double exchange_latency(const PlmrDevice& device, const Grid& grid, Axis axis, double words,
                        std::span<const RowMove> moves);

}  // namespace heddle::mesh
