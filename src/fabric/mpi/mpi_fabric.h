// The fabric `mpi`: ranks are processes that mpirun has started (`heddle launch`), on one machine or several. README.md
// says how it works.
#pragma once

#include <cstddef>
#include <memory>

#include "fabric/fabric.h"

namespace heddle {

// Collective over all processes that mpirun has started; at most one at a time in a process. Has peer addresses if all
// ranks are on one machine and none sets HEDDLE_MPI_MEMORY=window. Calls MPI_Init unless the program has; then
// MPI_Finalize runs at the process's end.
//
// Throws InputError when not started by mpirun; InvalidArgument when ranks disagree about the options, naming one and
// its value, or when the program has initialized MPI with less than MPI_THREAD_SERIALIZED; Failure when MPI fails, or
// when a fabric of this process has failed. An MPI call cannot be cancelled: if one does not return by the deadline
// (MPI_Init, when a rank never starts), the process prints an error that names the rank, and exits with status 1. After
// a failure the process must not call MPI, which may still write to memory that was given to it.
std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options = {});

// The same with a heap that is the caller's: zeroed memory of options.heap_bytes, which outlives the fabric. Every rank gives
// one. Ranks then reach each other by messages alone, also on one machine.
std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options, std::byte* heap);

}  // namespace heddle
