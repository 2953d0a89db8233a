// The trace of a run of several processes on one machine (heddle launch): its ranks read the same clock, and rank 0 puts
// what they have recorded together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/gpu_activity.h"
#include "base/tracer.h"
#include "fabric/launch.h"

namespace heddle {

// Of a rank other than 0: leaves what it has recorded in a file beside `output`, named for this run.
void leave_trace_part(const std::string& output, const Launch& launch, const Tracer& tracer,
                      const std::vector<GpuTrack>& gpu_tracks);

// Of rank 0: adds what the others have left, waits for them so long, and removes their files. Streams of rank r on a GPU
// are numbered from 1000 r on, as processes may share it. Returns the ranks that have left nothing.
std::vector<int> add_trace_parts(const std::string& output, const Launch& launch,
                                 std::chrono::milliseconds longest_wait, Tracer& tracer,
                                 std::vector<GpuTrack>& gpu_tracks);

}  // namespace heddle
