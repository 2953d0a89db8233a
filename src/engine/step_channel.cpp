#include "engine/step_channel.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "engine/rank_error.h"

namespace heddle {

void StepChannel::await_joined() {
  std::unique_lock lock(mutex_);
  wait_for_others(lock, "to be ready", [&] { return num_joined_ == std::ssize(taken_); });
}

void StepChannel::send(const StepPlan& plan) {
  std::unique_lock lock(mutex_);
  wait_for_others(lock, "to take a step", [&] {
    return std::all_of(taken_.begin() + 1, taken_.end(), [&](std::uint64_t taken) { return taken == num_sent_; });
  });
  plan_ = plan;
  ++num_sent_;
  lock.unlock();
  sent_or_over_.notify_all();
}

void StepChannel::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  sent_or_over_.notify_all();
}

void StepChannel::join() {
  {
    const std::lock_guard lock(mutex_);
    ++num_joined_;
  }
  heard_.notify_one();
}

bool StepChannel::receive(int rank, StepPlan& plan) {
  std::uint64_t& taken = taken_[static_cast<std::size_t>(rank)];
  {
    std::unique_lock lock(mutex_);
    sent_or_over_.wait(lock, [&] { return closed_ || error_ != nullptr || taken < num_sent_; });
    if (closed_ || error_ != nullptr) return false;
    plan = plan_;
    ++taken;
  }
  heard_.notify_one();
  return true;
}

void StepChannel::fail(int rank, std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;
    failed_rank_ = rank;
    error_ = std::move(error);
  }
  sent_or_over_.notify_all();
  heard_.notify_one();
}

void StepChannel::check() const {
  const std::lock_guard lock(mutex_);
  check_locked();
}

void StepChannel::check_locked() const {
  if (error_ != nullptr) throw_naming_rank(failed_rank_, error_);
}

template <class Done>
void StepChannel::wait_for_others(std::unique_lock<std::mutex>& lock, const char* what, const Done& done) {
  const bool in_time =
      heard_.wait_until(lock, Deadline::after(kLongestWait).time(), [&] { return error_ != nullptr || done(); });
  check_locked();
  if (!in_time) throw_error<Timeout>("rank 0 waited too long for the other ranks {}", what);
}

}  // namespace heddle
