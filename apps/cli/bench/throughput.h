// bench throughput: many requests through the engine, without a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/bench/bench.h"
#include "cli/bench/serve_load.h"
#include "engine/engine.h"

namespace heddle {

struct LoadTotals {
  int num_requests = 0;
  std::int64_t prompt_tokens = 0;  // computed: those of a preempted request more than once
  std::int64_t output_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t steps_in_parts = 0;  // of them, in two (--tp-mode weave)
  std::size_t bytes_read = 0;
  double seconds = 0;
};

// Of records: tokens of the smallest step that may be computed in two parts; null: none is.
nlohmann::ordered_json split_tokens_of(const SplitOptions& split);

// Submits the requests of `load` at once, with random prompts, and runs the engine until it is idle. Throws Failure when
// one of them fails, and Interrupted after a signal.
LoadTotals run_load(Engine& engine, const ServeLoadOptions& load, const InterruptGuard& guard);

}  // namespace heddle
