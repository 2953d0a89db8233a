// bench throughput: many requests through the engine, without a server.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cli/bench/bench.h"
#include "cli/bench/serve_load.h"
#include "engine/engine.h"

namespace heddle {

struct LoadTotals {
  std::int64_t prompt_tokens = 0;  // computed: those of a preempted request more than once
  std::int64_t output_tokens = 0;
  std::int64_t steps = 0;
  std::size_t bytes_read = 0;
  double seconds = 0;
};

// Submits the requests of `load` at once, with random prompts, and runs the engine until it is idle. Throws Failure when
// one of them fails, and Interrupted after a signal.
LoadTotals run_load(Engine& engine, const ServeLoadOptions& load, const InterruptGuard& guard);

}  // namespace heddle
