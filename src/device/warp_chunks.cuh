// Warps of a block that work through chunks together, beside other warps of the block with other parts of the work. One
// warp more looks after their flags.
#pragma once

#include <cstdint>

#include "device/group.h"

namespace heddle {

#ifdef __CUDACC__
// Some warps of a block that share their work with no other block. One warp more, which looks after flags for them,
// joins sync().
struct WarpsOfBlock : DeviceWarps {
  __device__ WarpsOfBlock(int first_warp, int warps, int barrier) : DeviceWarps(first_warp, warps, barrier, 1) {}

  __device__ int block() const { return 0; }
  __device__ int blocks() const { return 1; }
};
static_assert(Group<WarpsOfBlock>);

// For each chunk c < chunks: ready(c) by the warp that keeps the flags, then work(c) by the others, then tell(c + 1) by the
// warp that keeps the flags. A flag's release waits for all stores before it; meanwhile the others work on the next chunk.
// It tells of chunk c after ready(c + 1), so ready(c + 1) must not wait, over however many peers, for chunk c's tell.
// False when a ready() has given up; `stopped` alternates between two places in shared memory, so that all warps have read
// one before it is written again.
template <class Ready, class Work, class Tell>
__device__ bool chunk_by_chunk(const WarpsOfBlock& warps, std::uint32_t chunks, bool (&stopped)[2], const Ready& ready,
                               const Work& work, const Tell& tell) {
  const bool keeps_flags = warps.lane() < 0 || warps.lane() >= warps.lanes();
  for (std::uint32_t c = 0; c <= chunks; ++c) {
    if (keeps_flags && c < chunks && !ready(c)) stopped[c % 2] = true;
    warps.sync();  // c may begin, and c - 1 is written
    if (stopped[c % 2]) return false;
    if (!keeps_flags && c < chunks) work(c);
    if (keeps_flags && c > 0) tell(c);
  }
  return true;
}
#endif

}  // namespace heddle
