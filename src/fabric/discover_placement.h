// Which ranks of a run share a machine, as the ranks themselves find it.
#pragma once

#include "base/stream.h"
#include "fabric/fabric.h"
#include "fabric/placement.h"

namespace heddle {

// Collective: a place in the heap, and a barrier in `stream`. `local_ranks`: how many ranks are on this rank's machine
// (Launch::num_local_ranks). Throws InputError on every rank, with the number of each, where machines have different
// numbers of ranks.
Placement discover_placement(Fabric& fabric, Stream& stream, int local_ranks);

}  // namespace heddle
