// `shm` with ranks as processes of one machine.
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/launch.h"

namespace heddle {

// Collective: the ranks find each other by the run's job key, and return when all have joined. By then the shared
// objects have no names any more, so nothing is left behind however the processes end.
//
// The control block is a POSIX shared memory object of some 1.2 MB. The heaps are a file without a name (memfd) of rank
// 0, which the others open through /proc: /dev/shm, 64 MB in many containers, does not bound them. Their pages are
// taken here, by the rank that owns them, so that too little memory is an error now and no signal later.
//
// Throws InputError when not all ranks are on this machine or the heaps are larger than the memory that is available;
// InvalidArgument naming rank and values when the ranks' world or heap sizes differ, or two processes say that they are
// the same rank; Timeout when a rank has not come within options.deadline; Failure when one has ended, or the system
// gives no memory. All that have come throw the same.
std::unique_ptr<Fabric> join_shm_processes(const Launch& launch, const FabricOptions& options = {});

}  // namespace heddle
