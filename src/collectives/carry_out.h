// What every collective does first: compare calls, handle trivial cases, choose an algorithm, and run one of four ways.
#pragma once

#include "base/copy.h"
#include "base/lane.h"
#include "base/trace.h"
#include "collectives/communicator.h"
#include "collectives/run_on_cpu.h"

namespace heddle {

// `call` is what the ranks must agree on. `larger_bytes`, the size of the larger of a rank's two buffers, selects the
// algorithm. A team of one rank copies. The four ways enqueue and return:
//   vendor(VendorCollectives&)     NCCL
//   puts()                         for fabrics without peer addresses
//   programs(const Choice&, run)   calls run(program) with the program that the choice names, on the CPU
//   cuda(const Choice&)            launches that program as a kernel; called only in builds with CUDA
template <class Params, class Vendor, class Puts, class Programs, class Cuda>
void carry_out(Communicator& communicator, const Communicator::Call& call, std::size_t larger_bytes,
               const Params& params, const Lane& lane, const Vendor& vendor, const Puts& puts, const Programs& programs,
               const Cuda& cuda) {
  std::optional<Choice> asked;
  if constexpr (requires { params.choice; }) asked = params.choice;
  const Choice choice = communicator.choose(call.collective, larger_bytes, call.buffers.memory, lane.num_sms, asked);
  const auto to_compare = communicator.check(call, choice, lane.stream);
  if (larger_bytes == 0) return;
  const Span span(lane.stream, name_of(call.collective));
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(lane.stream, params.output, params.input, larger_bytes);
    return;
  }
  if (choice.algorithm == Algorithm::vendor) {
    vendor(communicator.vendor());
  } else if (choice.algorithm == Algorithm::put) {
    puts();
  } else if (lane.stream.device().kind == DeviceKind::cpu) {
    programs(choice, [&](const auto& program) { communicator.run_on_cpu(program, lane.stream, to_compare); });
  } else {
    cuda(choice);
  }
}

}  // namespace heddle
