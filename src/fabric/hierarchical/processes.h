// `hierarchical` with ranks as processes: shm inside a machine and mpi across, or nvlink inside and, across, GPU memory that is
// staged through the host and mpi.
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/launch.h"

namespace heddle {

// Collective over all processes that mpirun has started. Throws what join_shm_processes and open_mpi_fabric throw, and
// InputError where the ranks of a machine do not follow each other, or as machine_ranks() does (machine_ranks.h), and in builds
// without MPI.
std::unique_ptr<Fabric> join_hierarchical_processes(const Launch& launch, const FabricOptions& options = {});

// The same with a GPU a rank, by its rank on its machine; some may share one (nvlink-ipc). In builds with CUDA. Without MPI
// staged memory goes by shm, so all ranks are on one machine, and HEDDLE_MACHINE_RANKS says how many stand for one.
std::unique_ptr<Fabric> join_hierarchical_gpus(const Launch& launch, const FabricOptions& options = {});

}  // namespace heddle
