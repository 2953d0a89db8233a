// Communicator::run_on_cpu, for the sources of the operators.
#pragma once

#include "collectives/communicator.h"
#include "fabric/group.h"

namespace heddle {

template <class Program>
void Communicator::run_on_cpu(const Program& program, Stream& stream) {
  stream.enqueue([this, program](ThreadPool&) { program(HostThread{}, peers_, workspace_); });
}

}  // namespace heddle
