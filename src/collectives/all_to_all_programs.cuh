// Selects the program that a call of all_to_all runs.
#pragma once

#include "collectives/all_to_all.cuh"
#include "collectives/all_to_all.h"
#include "collectives/dispatch.cuh"

namespace heddle {

// Calls run(program) once.
template <class Run>
void with_all_to_all(const Communicator& communicator, const AllToAllParams& params, const Choice& choice,
                     const Run& run) {
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  // In place, peers must not overwrite what has not been sent.
  const bool symmetric = params.memory == Memory::symmetric && input != output;
  if (choice.algorithm == Algorithm::low_latency)
    with_at_once(communicator, [&]<int kAtOnce>() { run(LowLatencyAllToAll<kAtOnce>{input, output, bytes}); });
  else
    run(DirectAllToAll{input, output, bytes, symmetric});
}

}  // namespace heddle
