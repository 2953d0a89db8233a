// Selects the program that a call of all_gather runs.
#pragma once

#include "collectives/all_gather.cuh"
#include "collectives/all_gather.h"
#include "collectives/dispatch.cuh"

namespace heddle {

// Calls run(program) once.
template <class Run>
void with_all_gather(const Communicator& communicator, const AllGatherParams& params, const Choice& choice,
                     const Run& run) {
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (choice.algorithm == Algorithm::low_latency)
    with_at_once(communicator, [&]<int kAtOnce>() { run(LowLatencyAllGather<kAtOnce>{input, output, bytes}); });
  else
    run(DirectAllGather{input, output, bytes, params.memory == Memory::symmetric});
}

}  // namespace heddle
