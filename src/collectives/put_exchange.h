// The collectives on a fabric without peer addresses, by its put, signal and wait (CPU streams only), or by its
// messages where it has them (message_collectives.h).
//
// All use one exchange: every rank puts a piece to each other rank, signals, and waits for all. That is the schedule
// AllToAll; an all-reduce is two of them: shares to the owner of a piece, then its sum to all. A ring sends as many
// bytes, but in N - 1 dependent steps, and would not sum in rank order; so these give the same bits as the others.
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
