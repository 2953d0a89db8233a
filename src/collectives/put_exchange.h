// The collectives on a fabric without peer addresses, out of its put, signal and wait (CPU streams only); or out of its
// messages, where it has them (message_collectives.h).
//
// One way for all: every rank puts to each other rank its piece, then signals, then waits for all. That is the schedule
// AllToAll; an all-reduce is two of them (shares to the owner of a piece, its sum to all). A ring would send as much,
// in N - 1 steps that wait for each other, and would sum in another order than rank order; here the bits are those of
// every other algorithm.
#pragma once

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/reduce_scatter.h"

namespace heddle {

void all_reduce_by_puts(Communicator& communicator, const AllReduceParams& params, Stream& stream);
void reduce_scatter_by_puts(Communicator& communicator, const ReduceScatterParams& params, Stream& stream);
void all_gather_by_puts(Communicator& communicator, const AllGatherParams& params, Stream& stream);
void all_to_all_by_puts(Communicator& communicator, const AllToAllParams& params, Stream& stream);
void broadcast_by_puts(Communicator& communicator, const BroadcastParams& params, Stream& stream);

}  // namespace heddle
