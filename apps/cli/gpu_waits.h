// Finds the kernels whose blocks waited: kernels are recorded by CUPTI (base/gpu_activity.h), waits by the blocks
// themselves (GpuWaits in base/tracer.h).
#pragma once

#include <cstddef>
#include <vector>

#include "base/gpu_activity.h"
#include "base/tracer.h"

namespace heddle {

// Adds the waits to their kernels' entries, and takes kernels of the clock (kClockKernel), which are the trace's own, out of
// the tracks. These are seen by both clocks, so by them the times of waits become those of the tracks.
//
// A wait belongs to the kernel of its GPU with as many blocks that it overlaps most. Where ranks share a GPU and their
// kernels run at once, that may be several; then to the stream with most of the rank's waits. Of several warps of a block
// that wait at once, the time counts once. A wait that its kernel did not end lasts until the kernel's end.
//
// Returns how many waits have no kernel here: as the GPU has no clock kernels, or none that long or large runs then.
std::size_t place_waits(std::vector<GpuTrack>& tracks, const std::vector<GpuWaits>& waits);

}  // namespace heddle
