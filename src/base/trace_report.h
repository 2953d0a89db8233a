// Where the time of a traced step went: the taxes of "Eliminating Multi-GPU Performance Taxes", section 2.3, on streams of
// the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tracer.h"

namespace heddle {

// Of one rank's stream, seconds of all its steps. The four parts add up to `steps_seconds`: each instant of a step is in
// one of them.
struct StepShares {
  int rank = 0;
  int steps = 0;
  double step_seconds = 0;
  double compute = 0;      // a task runs, and none of the following
  double transfer = 0;     // inside a span of a transfer, or waiting for another stream of this rank, which transfers
  double launch = 0;       // no task runs: the next one has not begun yet
  double synchronous = 0;  // the bulk-synchronous tax: waiting for another rank
  double hidden_transfer = 0;  // transfers of this rank's other streams during its steps; not a part of the sum
};

// One entry for each track with spans named "step", in the order of ranks. Nested and overlapping steps count once.
std::vector<StepShares> step_shares(const std::vector<std::unique_ptr<TraceTrack>>& tracks);

// Spans of these names are transfers: "transfer", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
// "barrier".
bool is_transfer(std::string_view name);

}  // namespace heddle
