// Where the time of a traced step went: the taxes of "Eliminating Multi-GPU Performance Taxes", section 2.3, on streams of
// the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tracer.h"

namespace heddle {

// Of one rank's stream, seconds of all its steps of one label. The four parts add up to `steps_seconds`: each instant of a step is in
// one of them.
struct StepShares {
  int rank = 0;
  std::string label;  // the name of the outermost span around the steps, such as a variant of a benchmark; may be empty
  int steps = 0;
  double step_seconds = 0;
  double compute = 0;      // a task runs, and none of the following
  double transfer = 0;     // inside a span of a transfer, or waiting for another stream of this rank, which transfers
  double launch = 0;       // no task runs: the next one has not begun yet
  double synchronous = 0;  // the bulk-synchronous tax: waiting for another rank
  // Of compute and transfer, and no more than these: memory traffic that hands results from one operator to the next.
  // The inter-kernel tax; 0 without a HandoverTime.
  double inter_kernel = 0;
  double hidden_transfer = 0;  // transfers of this rank's other streams during its steps; not a part of the sum
};

// A span of this name, around nothing, tells that its step writes and reads so many KiB (its index) of memory to hand
// results from one operator to the next, which a fused operator would not.
inline constexpr std::string_view kHandover = "handover";

// Seconds in which a thread writes and reads so many bytes of memory.
using HandoverTime = std::function<double(std::int64_t bytes)>;

// One entry for each track and label with spans named "step", in the order of ranks. Nested and overlapping steps count
// once.
std::vector<StepShares> step_shares(const std::vector<std::unique_ptr<TraceTrack>>& tracks,
                                    const HandoverTime& handover_time = {});

// Spans of these names are transfers: "transfer", those of collectives, and "all_reduce_norm", whose ranks transfer while
// they sum and normalise.
bool is_transfer(std::string_view name);

}  // namespace heddle
