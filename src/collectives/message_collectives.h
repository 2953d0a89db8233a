// The collectives between machines: messages, and sums in rank order on each rank (CPU streams only).
//
// All to all in one exchange, so a small all-reduce takes one trip: everybody sends everything. A larger one sends each
// rank its piece of a round, and with the next round's pieces the sums of this one. What needs no sum is received where
// it belongs. A call is one task of the stream.
#pragma once

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/reduce_scatter.h"
#include "fabric/message_exchange.h"

namespace heddle {

// The fabric's messages, where they are to be used: it has them, and no peer addresses. Null otherwise.
MessageExchange* messages_of(const Communicator& communicator);

void all_reduce_by_messages(Communicator& communicator, const AllReduceParams& params, Stream& stream);
void reduce_scatter_by_messages(Communicator& communicator, const ReduceScatterParams& params, Stream& stream);
void all_gather_by_messages(Communicator& communicator, const AllGatherParams& params, Stream& stream);
void all_to_all_by_messages(Communicator& communicator, const AllToAllParams& params, Stream& stream);
void broadcast_by_messages(Communicator& communicator, const BroadcastParams& params, Stream& stream);

}  // namespace heddle
