// Which ranks of a run share a machine, as the ranks themselves find it.
#pragma once

#include "base/stream.h"
#include "fabric/fabric.h"
#include "fabric/launch.h"
#include "fabric/placement.h"

namespace heddle {

// Collective: a place in the heap, and a barrier in `stream`. `launch` is this rank's. Throws InputError on every rank,
// with what each has said, where machines have different numbers of ranks, or where a machine's ranks do not follow each
// other.
Placement discover_placement(Fabric& fabric, Stream& stream, const Launch& launch);

}  // namespace heddle
