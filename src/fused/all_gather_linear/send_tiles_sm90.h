// The producers of pull and push on a GPU by bulk copies, without CUDA's headers.
#pragma once

#include "fused/all_gather_linear/all_gather_linear_sm90.h"

namespace heddle {

// Whether rows of this rank's shard are aligned to 16 bytes; else they go by the threads of produce.cuh.
bool is_for_bulk_copies(const GatherCall& call);

// As enqueue_shard_sm90, which has checked that there is something to send.
void send_tiles_sm90(const GatherCall& call, int sms, Stream& transfers);

}  // namespace heddle
