#include "fabric/shm/monitor.h"

#include <algorithm>

#include "device/atomics.h"

namespace heddle {

Monitor::Monitor(ShmControl& control, int rank, int world_size, const FabricOptions& options)
    : control_(control),
      rank_(rank),
      world_size_(world_size),
      first_rank_(options.first_rank),
      limits_{kInterval, options.deadline} {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

RankStatus Monitor::status(int rank) const {
  RankStatus status = status_of(control_, rank);
  status.silence =
      std::chrono::nanoseconds(seen_[static_cast<std::size_t>(rank)].silence.load(std::memory_order_relaxed));
  return status;
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
  seen.silence.fetch_add(elapsed.count(), std::memory_order_relaxed);
  const Loss loss = loss_of(first_rank_ + rank, status(rank), limits_);
  // It may have left in good order since the first look.
  if (loss.kind == Loss::none || atomic_load(&slot.state) != RankSlot::joined) return;
  declare_trouble(control_, loss.kind == Loss::ended ? Trouble::failure : Trouble::timeout, first_rank_ + rank_,
                  first_rank_ + rank, loss.text);
}

}  // namespace heddle
