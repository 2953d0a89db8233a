// Selects the program that a call of reduce_scatter runs.
#pragma once

#include "collectives/dispatch.cuh"
#include "collectives/reduce_scatter.cuh"
#include "collectives/reduce_scatter.h"

namespace heddle {

// Calls run(program) once.
template <class Run>
void with_reduce_scatter(const Communicator& communicator, const ReduceScatterParams& params, const Choice& choice,
                         const Run& run) {
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  // Peers load pieces 16 bytes at a time, so each piece must begin at a multiple of 16.
  const bool symmetric = params.memory == Memory::symmetric && bytes % kPacketBytes == 0;
  with_element(params.dtype, [&]<class T>() {
    with_at_once(communicator, [&]<int kAtOnce>() {
      if (choice.algorithm == Algorithm::low_latency)
        run(LowLatencyReduceScatter<T, kAtOnce>{input, output, bytes});
      else
        run(DirectReduceScatter<T, kAtOnce>{input, output, bytes, symmetric});
    });
  });
}

}  // namespace heddle
