// The fabric `mpi`: ranks are processes that mpirun has started (`heddle launch`), on one machine or several.
//
// Where all ranks share one machine, each has all heaps mapped: puts and signals are stores, and there are peer
// addresses (Capability::peer_addresses). HEDDLE_MPI_MEMORY=window in the environment of all ranks has them go without,
// as between machines; so do heaps that one of them cannot map.
//
// Else every operation is a message to the peer, which carries out those of one rank in the order in which they were
// sent (heap_server.h). A put is done for its stream when its source may be overwritten; a fence, a barrier, and a signal
// to another peer than the put's first ask the peer whether it is done there. Collectives go by messages of their own
// (fabric/message_exchange.h).
//
// A barrier is log2(n) rounds of empty messages. MPI is asked for MPI_THREAD_SERIALIZED: one mutex lies around every
// call, and none of these calls waits for a peer, so a stream that does holds up no other. A rank that computes does not
// enter MPI; a thread serves its peers for it, ten thousand times a second.
//
// Failure: RankWatch (rank_watch.h). Whatever waits for a peer, a put or a fence as well, ends with Timeout or Failure,
// thrown by synchronize(). An MPI call that does not return (MPI_Init, where a rank never comes) cannot be left: the
// process then prints the error and ends with status 1. When a fabric has failed, MPI_Finalize is left out: it would wait for the rank that is gone.
// This process must then not call MPI again: transfers that have failed are still posted, into memory that may be gone.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace heddle {

// Collective over all that mpirun has started; at most one at a time in a process. Calls MPI_Init unless the program
// has, and MPI_Finalize at the process's end if so. Throws InputError when not started by mpirun; InvalidArgument when
// ranks disagree about the options, naming one and its value, or when the program has initialised MPI with less than
// MPI_THREAD_SERIALIZED; Failure when MPI cannot, or a fabric of this process has failed. A rank that never comes ends the process after the deadline, with a
// line that names it.
std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options = {});

}  // namespace heddle
