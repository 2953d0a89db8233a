// `hierarchical` with ranks as processes: shm inside a machine, mpi across. Defined only in builds with MPI.
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/launch.h"

namespace heddle {

// Collective over all processes that mpirun has started. Throws what join_shm_processes and open_mpi_fabric throw, and
// InputError where the ranks of a machine do not follow each other, or as machine_ranks() does (machine_ranks.h).
std::unique_ptr<Fabric> join_hierarchical_processes(const Launch& launch, const FabricOptions& options = {});

}  // namespace heddle
