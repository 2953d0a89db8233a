// The links of emulated machines: when each is free, and what a stream does to take its turn. One source for a CPU thread
// and a kernel of one thread (device/enqueue_body.h).
#pragma once

#include <cstdint>
#include <thread>

#include "device/group.h"
#include "device/peers.h"
#include "device/spin.h"

namespace heddle {

// In one rank's symmetric heap, zeroed. Times are nanoseconds of a clock that all ranks share.
struct LinkClocks {
  std::uint64_t next_ticket, served;                            // a lock that serves in the order of arrival
  std::uint64_t out_free_at[kMaxPeers], in_free_at[kMaxPeers];  // by machine
};

// A transfer of `duration` from one machine to another. It begins as soon as both links are free, not before `now`, and
// holds them until the returned time. The caller holds the lock.
HEDDLE_HOST_DEVICE std::uint64_t reserve_links(LinkClocks& clocks, int from, int to, std::uint64_t now,
                                               std::uint64_t duration) {
  std::uint64_t begin = now;
  for (const std::uint64_t* link : {&clocks.out_free_at[from], &clocks.in_free_at[to]})
    if (const std::uint64_t free_at = atomic_load<Order::relaxed>(link); free_at > begin) begin = free_at;
  atomic_store<Order::relaxed>(&clocks.out_free_at[from], begin + duration);
  atomic_store<Order::relaxed>(&clocks.in_free_at[to], begin + duration);
  return begin + duration;
}

// Until the device's clock (now_nanoseconds) shows `time`.
HEDDLE_HOST_DEVICE void pause_until(std::uint64_t time) {
#ifdef __CUDA_ARCH__
  while (now_nanoseconds() < time) __nanosleep(200);
#else
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(static_cast<std::int64_t>(time))));
#endif
}

// Takes a transfer's turn, and leaves in *over_at, by the device's own clock, when it is over. A turn that does not come, or a
// transfer that would not be over, within the limit is reported; *over_at is then now, so that nothing waits for it.
struct ReserveLinks {
  WaitLimit limit;
  WaitReason reason;
  LinkClocks* clocks;
  std::uint64_t* over_at;
  int from, to;  // machines
  std::uint64_t duration;
  std::uint64_t to_shared_clock;  // added to the device's clock, gives the shared one; may wrap around

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() != 0) return;
    *over_at = now_nanoseconds();
    const std::uint64_t ticket = atomic_add(&clocks->next_ticket, 1);
    if (!spin_until(limit, reason, &clocks->served, ticket)) return;
    const std::uint64_t now = now_nanoseconds();
    const std::uint64_t over = reserve_links(*clocks, from, to, now + to_shared_clock, duration) - to_shared_clock;
    atomic_store(&clocks->served, ticket + 1);
    if (over - now <= limit.nanoseconds)
      *over_at = over;
    else if (limit.record != nullptr)
      report(*limit.record, reason, over - now, limit.nanoseconds);
  }
};

// Waits until a transfer is over, and for the latency behind it: not for longer than the limit of ReserveLinks and that.
struct AwaitTransfer {
  const std::uint64_t* over_at;
  std::uint64_t latency;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) pause_until(*over_at + latency);
  }
};

struct AwaitLatency {
  std::uint64_t latency;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) pause_until(now_nanoseconds() + latency);
  }
};

// Leaves the device's clock in *now.
struct ReadClock {
  std::uint64_t* now;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) *now = now_nanoseconds();
  }
};

}  // namespace heddle
