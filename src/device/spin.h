// Waiting for a flag, with a deadline, on the host and in kernels.
//
// Three waits have loops of their own, because each does something else between two looks. They share the clock, the
// record and its text (report, what_gave_up):
//   - wait_deadline_sm90.cuh: waits inside one kernel, for an mbarrier or any other test. They keep one register, look
//     at the record only after milliseconds, and trap where there is none;
//   - MpiWorld::await: the rank that waits also serves the messages of others, and measures time by a clock that stands
//     still while its process is stopped;
//   - becomes() (fabric/team_entries.h): for a state that a rank is about to write, without a record.
#pragma once

#include <cstdint>
#include <thread>

#include "base/host_device.h"
#include "device/atomics.h"
#include "device/clock.h"
#include "device/group.h"
#include "device/semaphore.h"
#include "device/traced_wait.h"
#include "device/wait_record.h"

namespace heddle {

// Fills the record unless another wait has. A GPU's record lies in pinned host memory: the compare-exchange decides
// between the GPU's own waits, which needs no atomics on the bus (PCIe AtomicOps). Those would be needed only to exclude
// the host, which must not write while kernels may, or accept a report whose words come from two.
HEDDLE_HOST_DEVICE void report(WaitRecord& record, const WaitReason& reason, std::uint64_t expected,
                               std::uint64_t observed) {
  if (atomic_compare_exchange<Order::relaxed>(&record.state, WaitRecord::empty, WaitRecord::being_written) !=
      WaitRecord::empty)
    return;
  record.rank = reason.rank;
  record.from = reason.from;
  record.expected = expected;
  record.observed = observed;
  record.tag = reason.tag;
  atomic_store(&record.state, WaitRecord::complete);
}

// Whether some wait that reports where this one does has given up.
HEDDLE_HOST_DEVICE bool another_gave_up(const WaitLimit& limit) {
  return limit.record != nullptr && atomic_load<Order::relaxed>(&limit.record->state) != WaitRecord::empty;
}

// A wait that leaves no trace of its own.
struct Untraced {
  HEDDLE_HOST_DEVICE void begin() const {}
};

// One thread's wait until done(value) for the value that it loads from `place` (acquire). False past the limit, which
// it then reports, or when another wait has given up. `expected` is for the report. trace.begin() once a look has found
// nothing.
template <class Done, class Trace>
[[nodiscard]] HEDDLE_HOST_DEVICE bool spin_until(const WaitLimit& limit, const WaitReason& reason,
                                                 const std::uint64_t* place, std::uint64_t expected, Done done,
                                                 Trace trace) {
  // The clock and the record cost more than the flag, so they are read only once in a while.
#ifdef __CUDA_ARCH__
  constexpr std::uint32_t kLooksBetween = 4096;
#else
  constexpr std::uint32_t kLooksBetween = 256;
#endif
  // A process may be stopped for a while, by a debugger or a shell; such a gap must not count against the peer.
  constexpr std::uint64_t kLongestGap = 100'000'000;
  std::uint64_t last = 0;
  std::uint64_t waited = 0;
  for (std::uint32_t looks = 1;; ++looks) {
    const std::uint64_t observed = atomic_load(place);
    if (done(observed)) return true;
    if (looks == 1) trace.begin();
    if (looks % kLooksBetween != 0) continue;
    if (another_gave_up(limit)) return false;
    const std::uint64_t now = now_nanoseconds();
    if (last != 0) waited += now - last < kLongestGap ? now - last : kLongestGap;
    last = now;
    if (waited > limit.nanoseconds) {
      if (limit.record != nullptr) report(*limit.record, reason, expected, observed);
      return false;
    }
#ifndef __CUDA_ARCH__
    if (looks >= limit.looks_before_yield) std::this_thread::yield();
#endif
  }
}

template <class Done>
[[nodiscard]] HEDDLE_HOST_DEVICE bool spin_until(const WaitLimit& limit, const WaitReason& reason,
                                                 const std::uint64_t* place, std::uint64_t expected, Done done) {
  return spin_until(limit, reason, place, expected, done, TracedPeerWait(limit, reason));
}

// Waits until the flag is >= target.
[[nodiscard]] HEDDLE_HOST_DEVICE bool spin_until(const WaitLimit& limit, const WaitReason& reason,
                                                 const std::uint64_t* flag, std::uint64_t target) {
  return spin_until(limit, reason, flag, target, [target](std::uint64_t observed) { return observed >= target; });
}

// One thread's wait for the next message (acquire at system scope). False as of spin_until; then no message is taken.
template <class Limit>
[[nodiscard]] HEDDLE_HOST_DEVICE bool take_next(const Limit& limit, const WaitReason& reason, Semaphore& semaphore) {
  const std::uint64_t next = semaphore.taken + 1;
  if (!spin_until(limit, reason, &semaphore.arrived, next)) return false;
  semaphore.taken = next;
  return true;
}

// Whether all lanes of the group found what they waited for. Every lane must call it. It is a barrier of the group:
// afterwards each lane sees what every other lane wrote or acquired before.
template <VotingGroup G>
[[nodiscard]] HEDDLE_HOST_DEVICE bool agree(const G& group, bool found) {
  return group.all(found);
}

}  // namespace heddle
