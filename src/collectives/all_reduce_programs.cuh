// Selects the program that a call of all_reduce runs.
#pragma once

#include "collectives/all_reduce.cuh"
#include "collectives/all_reduce.h"
#include "collectives/dispatch.cuh"
#include "collectives/pipelined_all_reduce.cuh"

namespace heddle {

// Calls run(program) once.
template <class Run>
void with_all_reduce(const Communicator& communicator, const AllReduceParams& params, const Choice& choice,
                     const Run& run) {
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  const int blocks = communicator.blocks_of(choice);
  with_element(params.dtype, [&]<class T>() {
    with_at_once(communicator, [&]<int kAtOnce>() {
      if (choice.algorithm == Algorithm::low_latency)
        run(OneShotAllReduce<T, kAtOnce>{input, output, bytes});
      else if (choice.algorithm == Algorithm::two_phase)
        run(TwoPhaseAllReduce<T, kAtOnce>{input, output, {bytes, communicator.size()}});
      else if (choice.algorithm == Algorithm::pipelined)
        run(PipelinedAllReduce<T, kAtOnce>{
            input, output, {bytes, communicator.size(), blocks, communicator.collective_memory().slots_bytes}});
      else
        run(DirectAllReduce<T, kAtOnce>{input, output, bytes, params.memory == Memory::symmetric});
    });
  });
}

}  // namespace heddle
