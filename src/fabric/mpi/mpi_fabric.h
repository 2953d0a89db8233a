// The fabric `mpi`: ranks are processes that mpirun has started (`heddle launch`), on one machine or several.
//
// Where all ranks share one machine, each has all heaps mapped: puts and signals are stores, and there are peer
// addresses (Capability::peer_addresses). HEDDLE_MPI_MEMORY=window in the environment of all ranks has them go without,
// as between machines; so do heaps that one of them cannot map.
//
// Else memory is one MPI window over each rank's heap, in passive mode. A put is an MPI_Put, complete at its peer after
// the flush that the next signal, fence or barrier begins with; a signal is an MPI_Accumulate of 8 bytes; a wait looks
// at the own memory while it lets MPI make progress. Collectives go by messages (fabric/message_exchange.h).
//
// A barrier is log2(n) rounds of empty messages. MPI is asked for MPI_THREAD_SERIALIZED: one mutex lies around every
// call. A rank that computes does not enter MPI, and over a network its peers' transfers then stand still; so a thread
// enters it for that rank, ten thousand times a second (a thousand where all ranks share one machine).
//
// Failure: RankWatch (rank_watch.h). Waits and barriers end with Timeout or Failure, thrown by synchronize(). An MPI
// call that does not return (a flush towards a rank that is gone) cannot be left: the process then prints the error and
// ends with status 1. When a fabric has failed, MPI_Finalize is left out: it would wait for the rank that is gone.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace heddle {

// Collective over all that mpirun has started; at most one at a time in a process. Calls MPI_Init unless the program
// has, and MPI_Finalize at the process's end if so. Throws InputError when not started by mpirun; InvalidArgument when
// ranks disagree about the options, naming one and its value, or when the program has initialised MPI with less than
// MPI_THREAD_SERIALIZED; Failure when MPI cannot. A rank that never comes ends the process after the deadline, with a
// line that names it.
std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options = {});

// "Open MPI 4.1.4"
std::string mpi_version();

}  // namespace heddle
