// Selects the program that a call of broadcast runs.
#pragma once

#include "collectives/broadcast.cuh"
#include "collectives/broadcast.h"
#include "collectives/dispatch.cuh"

namespace heddle {

// Calls run(program) once.
template <class Run>
void with_broadcast(const BroadcastParams& params, const Choice& choice, const Run& run) {
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (choice.algorithm == Algorithm::low_latency)
    run(LowLatencyBroadcast{input, output, bytes, params.root});
  else
    run(DirectBroadcast{input, output, bytes, params.root, params.memory == Memory::symmetric});
}

}  // namespace heddle
