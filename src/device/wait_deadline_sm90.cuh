// How a wait inside a kernel ends when what it waits for does not come. A kernel cannot throw, and a trap would take
// the process's context with it: a wait that has lasted too long fills the stream's record and returns, and the host
// throws before it uses what the kernel wrote (device/wait_watch.h). Every later wait of that stream that would last
// longer than a moment sees the record and returns too, so that the kernel ends soon.
//
// A kernel whose wait gave up goes on with whatever lies in memory. So that this is safe:
// - loops are as long as they would have been: warps that meet at a named barrier, which has no deadline, still meet;
// - what a wait guards may be used as numbers. Where it is used as an address or a count, the caller must look at what
//   the wait returned.
#pragma once

#include <cstdint>

#include "device/kernel_waits.h"
#include "device/spin.h"

namespace heddle::sm90 {

// Whether to look at the clock after `tries`. A try takes some tens of nanoseconds, or as long as the hardware suspends
// it: so looks are rare in a short wait, never far apart in a long one, and begin early, so that a wait after one that
// gave up is short even where tries are long.
__device__ constexpr bool is_time_to_look(std::uint32_t tries) {
  return tries % 16 == 0 && (tries >= 1024 || (tries & (tries - 1)) == 0);
}

// The clock in units of 2^20 ns, about a millisecond: one register is enough.
inline constexpr int kTickShift = 20;
__device__ inline std::uint32_t now_ticks() {
  return static_cast<std::uint32_t>(now_nanoseconds() >> kTickShift);
}

// The deadline of one wait for something that the same kernel does, which takes microseconds.
class WaitDeadline {
 public:
  // Whether to give up: the limit has passed, which is then reported, or another wait of the stream has given up.
  __device__ bool is_over(const KernelWaits& waits, std::uint64_t expected, std::uint64_t observed) {
    const std::uint32_t waited = ticks_waited();
    if (waited < kTicksAlone) return false;
    if (another_gave_up(waits.limit)) return true;
    return is_past(waited, waits.limit.nanoseconds, waits, expected, observed);
  }

 protected:
  // Long enough that a normal wait ends before it reads the record, which lies in host memory.
  static constexpr std::uint32_t kTicksAlone = 2;

  // 0 at the first call, which starts the clock.
  __device__ std::uint32_t ticks_waited() {
    const std::uint32_t now = now_ticks();
    if (since_ == 0) since_ = now;
    return now - since_;
  }

  static __device__ bool is_past(std::uint32_t waited, std::uint64_t nanoseconds, const KernelWaits& waits,
                                 std::uint64_t expected, std::uint64_t observed) {
    if (waited <= static_cast<std::uint32_t>(nanoseconds >> kTickShift)) return false;
    if (waits.limit.record == nullptr) __trap();  // otherwise wrong results would go unnoticed
    report(*waits.limit.record, {.rank = -1, .from = static_cast<int>(blockIdx.x), .tag = waits.tag}, expected,
           observed);
    return true;
  }

 private:
  std::uint32_t since_ = 0;  // in ticks; 0: not looked yet
};

// For a wait that all lanes of a warp make together; they give up together.
class WarpWaitDeadline : WaitDeadline {
 public:
  __device__ bool is_over(const KernelWaits& waits, std::uint64_t expected, std::uint64_t observed) {
    return __any_sync(~0u, WaitDeadline::is_over(waits, expected, observed)) != 0;
  }
};

// For a wait for another warp of the block, which will signal even if its own waits give up: twice the time, regardless
// of the record. So the warps of a block agree on the remaining work.
class LongWaitDeadline : WaitDeadline {
 public:
  __device__ bool is_over(const KernelWaits& waits, std::uint64_t expected, std::uint64_t observed) {
    return is_past(ticks_waited(), 2 * waits.limit.nanoseconds, waits, expected, observed);
  }
};

// Calls `test` until it is true. False when it gave up.
template <class HowLong = WaitDeadline, class Test>
__device__ inline bool spin_until(const KernelWaits& waits, std::uint64_t expected, std::uint64_t observed, Test test) {
  if (test()) [[likely]]
    return true;
  HowLong deadline;
#pragma unroll 1
  for (std::uint32_t tries = 1;; ++tries) {
    if (test()) return true;
    if (is_time_to_look(tries) && deadline.is_over(waits, expected, observed)) return false;
  }
}

}  // namespace heddle::sm90
