#include "fabric/shm/monitor.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "device/atomics.h"
#include "fabric/process_state.h"

namespace heddle {

Monitor::Monitor(ShmControl& control, int rank, int world_size, std::chrono::nanoseconds deadline)
    : control_(control), rank_(rank), world_size_(world_size), deadline_(deadline) {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

std::chrono::nanoseconds Monitor::silence(int rank) const {
  return std::chrono::nanoseconds(seen_[static_cast<std::size_t>(rank)].silence.load(std::memory_order_relaxed));
}

void Monitor::watch(const std::stop_token& stop) {
  auto last = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); })) {
    atomic_add<Order::relaxed>(&control_.ranks[rank_].beats, 1);
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds elapsed = std::min<std::chrono::nanoseconds>(now - last, 2 * kInterval);
    last = now;
    for (int rank = 0; rank < world_size_; ++rank)
      if (rank != rank_) look_at(rank, elapsed);
  }
}

void Monitor::look_at(int rank, std::chrono::nanoseconds elapsed) {
  const RankSlot& slot = control_.ranks[rank];
  Seen& seen = seen_[static_cast<std::size_t>(rank)];
  const std::uint64_t beats = atomic_load<Order::relaxed>(&slot.beats);
  if (atomic_load(&slot.state) != RankSlot::joined || beats != seen.beats) {
    seen.beats = beats;
    seen.silence.store(0, std::memory_order_relaxed);
    return;
  }
  const std::chrono::nanoseconds silence = this->silence(rank) + elapsed;
  seen.silence.store(silence.count(), std::memory_order_relaxed);
  // One whose heart beats is alive, whatever /proc says: it may be hidden from us.
  if (silence < 2 * kInterval) return;
  if (start_time_of_process(slot.process) != slot.start_time) {
    if (atomic_load(&slot.state) != RankSlot::joined) return;  // it left in good order since we looked
    declare_trouble(control_, Trouble::failure, rank_, rank, fmt::format("{} has ended", name_of_rank(control_, rank)));
  } else if (silence > deadline_) {
    declare_trouble(control_, Trouble::timeout, rank_, rank,
                    fmt::format("{} has not moved for {:.1f} s", name_of_rank(control_, rank),
                                std::chrono::duration<double>(silence).count()));
  }
}

}  // namespace heddle
