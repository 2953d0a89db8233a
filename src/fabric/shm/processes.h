// `shm` with ranks as processes of one machine.
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/launch.h"

namespace heddle {

// Collective: the ranks find each other by the run's job key. Returns when all have joined. By then the shared objects
// have no names any more, so nothing is left behind however the processes end.
//
// Throws InputError when not all ranks are on this machine or the heaps are larger than the available memory;
// InvalidArgument naming rank and values when the ranks' world or heap sizes differ, or two processes claim the same
// rank; Timeout when a rank has not joined within options.deadline; Failure when one has ended, or the system gives no
// memory. All ranks that have joined throw the same.
std::unique_ptr<Fabric> join_shm_processes(const Launch& launch, const FabricOptions& options = {});

}  // namespace heddle
