// The fabrics of this build, by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"

namespace heddle {

// "shm", and "mpi", "hierarchical" (shm inside a machine, mpi across) and "nvlink" in builds that have them; "nvlink-ipc" is
// nvlink with its memory from plain CUDA instead of NCCL (nvlink/nvlink.h), "hierarchical-nvlink" that inside machines and GPU
// memory staged through the host across (hierarchical/processes.h).
std::vector<std::string_view> fabric_names();

// Collective, by every process that mpirun (or `heddle launch`) has started for this run: this process's rank. Throws
// InputError for a name that is unknown or not built in, saying which are, and when not started by mpirun; else what
// that fabric's header says.
std::unique_ptr<Fabric> open_fabric(std::string_view name, const FabricOptions& options = {});

}  // namespace heddle
