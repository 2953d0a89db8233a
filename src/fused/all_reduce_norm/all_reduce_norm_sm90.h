// AllReduceNorm on a GPU. all_reduce_norm.h has what it does; its arguments are checked there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lane.h"
#include "device/peers.h"
#include "fused/all_reduce_norm/norm_form.h"
#include "fused/all_reduce_norm/norm_memory.h"

namespace heddle {

// Sets `bytes` at `inbox`, a multiple of 16, to empty packets. Enqueues.
void fill_norm_inbox_sm90(std::byte* inbox, std::size_t bytes, Stream& stream);

// Whether DirectNorm's kernel takes rows of that shape: they fit its registers and shared memory, and TMA moves them.
bool takes_direct_norm_sm90(std::int64_t hidden, DType x, DType y, int ranks);

struct AllReduceNormLaunch {
  NormForm form;
  bool programmatic;  // whether it may start before the kernel ahead has ended
};

void all_reduce_norm_sm90(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                          const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane);

}  // namespace heddle
