// A trace as JSON of Chrome's trace format, which Perfetto opens.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/gpu_activity.h"
#include "base/tracer.h"

namespace heddle {

// A process for each rank and a thread for each of its CPU streams; a process for each GPU and a thread for each of its
// streams; one clock, since the ranks are of one machine. What is in one thread nests: tasks in spans, waits in tasks, waits
// of blocks in kernels.
nlohmann::ordered_json perfetto_json(const std::vector<std::unique_ptr<TraceTrack>>& tracks,
                                     const std::vector<GpuTrack>& gpu_tracks);

}  // namespace heddle
