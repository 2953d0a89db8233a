// Communicator::run_on_cpu, for the sources of the collectives.
#pragma once

#include "collectives/communicator.h"
#include "device/group.h"
#include "device/kernel_end.h"

namespace heddle {

template <class Program>
void Communicator::run_on_cpu(const Program& program, Stream& stream, const std::optional<CallSignature>& to_compare) {
  if (!to_compare) {
    stream.enqueue([this, program](ThreadPool&) {
      program(HostThread{}, peers_, collective_memory_);
      end_as_a_kernel();
    });
    return;
  }
  stream.enqueue([this, program, mine = *to_compare](ThreadPool&) {
    call_check_->announce(mine);
    program(HostThread{}, checked_peers_, collective_memory_);
    end_as_a_kernel();
  });
}

}  // namespace heddle
