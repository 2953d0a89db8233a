// Which ranks of a run share a machine, as the ranks themselves find it.
#pragma once

#include <vector>

#include "base/stream.h"
#include "fabric/fabric.h"
#include "fabric/launch.h"

namespace heddle {

// How many ranks each machine has, in the order of ranks. Collective: a place in the heap, and a barrier in `stream`.
// `launch` is this rank's. Throws InputError on every rank, with what each has said, where a machine's ranks do not follow
// each other.
std::vector<int> discover_machines(Fabric& fabric, Stream& stream, const Launch& launch);

}  // namespace heddle
