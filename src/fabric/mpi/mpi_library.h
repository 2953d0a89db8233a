// MPI as a library that a process may begin once and end once.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string>

#include "fabric/launch.h"
#include "fabric/mpi/rank_watch.h"

namespace heddle {

// MPI_Init, unless it was called; arranges MPI_Finalize for the process's end if it was not. Throws Failure,
// InvalidArgument (see open_mpi_fabric). May never return; then `watch` ends the process.
void begin_mpi(const Launch& launch, RankWatch& watch);

// MPI_Finalize is not to be called, since a rank may be gone; begin_mpi() throws Failure from now on.
void abandon_mpi();

// "MPI_Put: MPI_ERR_RANK: invalid rank"
std::string mpi_error(const char* call, int code);

// Throws Failure with that text unless `code` is MPI_SUCCESS.
void check_mpi(const char* call, int code);

}  // namespace heddle
