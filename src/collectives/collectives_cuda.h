// The CUDA side of the collectives; x_sm90.cu defines x_cuda. Defined only in builds with CUDA. Callers have validated
// the parameters.
#pragma once

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/reduce_scatter.h"

namespace heddle {

void all_reduce_cuda(Communicator& communicator, const AllReduceParams& params, const Choice& choice, const Lane& lane);
void reduce_scatter_cuda(Communicator& communicator, const ReduceScatterParams& params, const Choice& choice,
                         const Lane& lane);
void all_gather_cuda(Communicator& communicator, const AllGatherParams& params, const Choice& choice, const Lane& lane);
void all_to_all_cuda(Communicator& communicator, const AllToAllParams& params, const Choice& choice, const Lane& lane);
void broadcast_cuda(Communicator& communicator, const BroadcastParams& params, const Choice& choice, const Lane& lane);
void barrier_cuda(Communicator& communicator, const Choice& choice, const Lane& lane);

}  // namespace heddle
