// AllReduceNorm on a GPU. all_reduce_norm.h has what it does; its arguments are checked there.
#pragma once

#include <cstddef>

#include "base/lane.h"
#include "device/peers.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"

namespace heddle {

// Sets `bytes` at `inbox`, a multiple of 16, to empty packets. Enqueues.
void fill_norm_inbox_sm90(std::byte* inbox, std::size_t bytes, Stream& stream);

struct AllReduceNormLaunch {
  AllReduceNormRegime regime;
  int blocks;
  bool programmatic;  // whether it may start before the kernel ahead has ended
};

void all_reduce_norm_sm90(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                          const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane);

}  // namespace heddle
