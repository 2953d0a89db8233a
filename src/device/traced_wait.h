// One thread's wait for a peer, as a trace shows it: on the CPU in the track of its stream (base/tracer.h), in a kernel in
// its rank's log.
#pragma once

#include "base/host_device.h"
#include "base/tracer.h"
#include "device/clock.h"
#include "device/wait_log.h"

namespace heddle {

#ifdef __CUDA_ARCH__
// Lanes of a warp that begin to wait together leave one stamp. Without a log a wait costs a comparison, once its first
// look has found nothing.
class TracedPeerWait {
 public:
  TracedPeerWait(const TracedPeerWait&) = delete;
  TracedPeerWait& operator=(const TracedPeerWait&) = delete;
  __device__ __forceinline__ TracedPeerWait(const WaitLimit& limit, const WaitReason& reason)
      : log_(limit.log), reason_(reason) {}
  TracedPeerWait(const WaitLimit&, WaitReason&&) = delete;  // it must outlive this object
  __device__ __forceinline__ ~TracedPeerWait() { end(); }

  __device__ __forceinline__ void begin() {
    if (log_ == nullptr || reason_.rank < 0 || !is_first_of_its_warp()) return;
    const std::uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    slot_ = begin_stamp(*log_, reason_, block, gridDim.x * gridDim.y * gridDim.z, now_nanoseconds());
  }
  __device__ __forceinline__ void end() {
    if (slot_ != 0) stamp_in(*log_, slot_).end = now_nanoseconds();
    slot_ = 0;
  }

 private:
  static __device__ __forceinline__ bool is_first_of_its_warp() {
    return static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(__activemask())) - 1;
  }

  WaitLog* log_;
  const WaitReason& reason_;
  WaitSlot slot_ = 0;
};
#else
class TracedPeerWait : public TracedWait {
 public:
  TracedPeerWait(const WaitLimit&, const WaitReason& reason) : TracedWait(reason.rank, reason.from, reason.tag.text) {}
  TracedPeerWait(const WaitLimit&, WaitReason&&) = delete;
};
#endif

}  // namespace heddle
