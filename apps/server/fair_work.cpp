#include "server/fair_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace heddle::server {

FairWork::FairWork(std::function<void(std::function<void()>)> worker, int num_workers)
    : worker_(std::move(worker)), most_slow_(std::max(1, num_workers - 1)) {}

void FairWork::add(std::uint64_t owner, Kind kind, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    Owner& entry = owners_[owner];
    if (!entry.active()) {
      std::optional<double> least;
      for (const auto& [id, other] : owners_)
        if (other.active()) least = std::min(least.value_or(other.seconds), other.seconds);
      entry.seconds = std::max(entry.seconds, least.value_or(0));
    }
    (kind == Kind::slow ? entry.slow : entry.quick).push_back(std::move(work));
  }
  worker_([this] { run_one(); });
}

// Quick work of an owner goes before its slow work.
std::optional<FairWork::Item> FairWork::next() {
  const std::lock_guard lock(mutex_);
  const bool slow_allowed = num_slow_ < most_slow_;
  auto best = owners_.end();
  for (auto entry = owners_.begin(); entry != owners_.end(); ++entry) {
    const Owner& owner = entry->second;
    if (owner.quick.empty() && (owner.slow.empty() || !slow_allowed)) continue;
    if (best == owners_.end() || owner.seconds < best->second.seconds) best = entry;
  }
  if (best == owners_.end()) return std::nullopt;
  Owner& owner = best->second;
  Item item{.owner = best->first, .kind = owner.quick.empty() ? Kind::slow : Kind::quick};
  auto& queue = item.kind == Kind::slow ? owner.slow : owner.quick;
  item.work = std::move(queue.front());
  queue.pop_front();
  ++owner.num_running;
  num_slow_ += item.kind == Kind::slow ? 1 : 0;
  return item;
}

void FairWork::run_one() {
  const std::optional<Item> item = next();
  if (!item) return;  // what is left is slow: the end of other slow work runs it
  const auto start = std::chrono::steady_clock::now();
  item->work();
  done(*item, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void FairWork::done(const Item& item, double seconds) {
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    Owner& owner = owners_[item.owner];
    owner.seconds += seconds;
    --owner.num_running;
    if (item.kind == Kind::slow) {
      --num_slow_;
      more = std::ranges::any_of(owners_, [](const auto& entry) { return !entry.second.slow.empty(); });
    }
  }
  if (more) worker_([this] { run_one(); });
}

}  // namespace heddle::server
