// Communicator::run_on_cpu, for the sources of the operators.
#pragma once

#include "collectives/communicator.h"
#include "device/group.h"

namespace heddle {

template <class Program>
void Communicator::run_on_cpu(const Program& program, Stream& stream, const std::optional<CallSignature>& to_compare) {
  if (!to_compare) {
    stream.enqueue([this, program](ThreadPool&) { program(HostThread{}, peers_, workspace_); });
    return;
  }
  stream.enqueue([this, program, mine = *to_compare](ThreadPool&) {
    call_check_->announce(mine);
    program(HostThread{}, hearing_peers_, workspace_);
  });
}

}  // namespace heddle
