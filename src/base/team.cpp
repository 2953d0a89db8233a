#include "base/team.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace heddle {

struct TeamState {
  int size;
  Deadline::Clock::duration longest_wait;
  std::atomic<std::uint64_t> barrier_arrivals{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;  // the first; guarded by mutex
};

int TeamMember::size() const {
  return state_->size;
}

void TeamMember::wait_until(const std::atomic<std::uint64_t>& flag, std::uint64_t target, std::string_view tag) {
  const Deadline deadline = Deadline::after(state_->longest_wait);
  while (true) {
    const std::uint64_t observed = flag.load(std::memory_order_acquire);
    if (observed >= target) return;
    if (state_->failed.load(std::memory_order_relaxed))
      throw_error<Failure>("rank {}: stopped waiting for {}: another rank has failed", rank_, tag);
    if (deadline.passed())
      throw_error<Timeout>("rank {}: waited for {} past the deadline: expected {}, observed {}", rank_, tag, target,
                           observed);
    std::this_thread::yield();
  }
}

void TeamMember::barrier() {
  ++barriers_passed_;
  // acq_rel: an arrival publishes what its rank wrote and, through the chain of arrivals, what earlier ranks wrote.
  state_->barrier_arrivals.fetch_add(1, std::memory_order_acq_rel);
  wait_until(state_->barrier_arrivals, barriers_passed_ * static_cast<std::uint64_t>(state_->size), "the barrier");
}

void run_team(int size, FunctionRef<void(TeamMember&)> member, Deadline::Clock::duration longest_wait) {
  require(size >= 1, "a team needs at least one member, not {}", size);
  TeamState state{.size = size, .longest_wait = longest_wait};
  const auto run = [&](int rank) {
    try {
      TeamMember self(state, rank);
      member(self);
    } catch (...) {
      const std::lock_guard lock(state.mutex);
      if (!state.error) state.error = std::current_exception();
      state.failed = true;
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(size));
    try {
      for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
    } catch (const std::system_error& error) {
      state.failed = true;  // ends the waits of members that have started
      throw_error<Failure>("cannot start the {} threads of a team: {}", size, error.what());
    }
  }
  if (state.error) std::rethrow_exception(state.error);
}

}  // namespace heddle
