// The collectives between machines: messages, and sums in rank order on each rank (CPU streams only).
//
// Each step is one all-to-all exchange. In a small all-reduce every rank sends its input to all others: one trip. A
// larger one works in rounds: it sends each rank its piece of a round together with the sums of the round before. Data
// that need no sum are received in place. A call is one task of the stream.
#pragma once

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/reduce_scatter.h"
#include "fabric/message_exchange.h"

namespace heddle {

// The fabric's messages, if it has them and no peer addresses; else null.
MessageExchange* messages_of(const Communicator& communicator);

void all_reduce_by_messages(Communicator& communicator, const AllReduceParams& params, Stream& stream);
void reduce_scatter_by_messages(Communicator& communicator, const ReduceScatterParams& params, Stream& stream);
void all_gather_by_messages(Communicator& communicator, const AllGatherParams& params, Stream& stream);
void all_to_all_by_messages(Communicator& communicator, const AllToAllParams& params, Stream& stream);
void broadcast_by_messages(Communicator& communicator, const BroadcastParams& params, Stream& stream);

}  // namespace heddle
