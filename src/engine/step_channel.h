// Hands each step of rank 0 to the other ranks of a process. Rank 0 alone samples: the tokens that it chooses come to the
// others with the next step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "step/step_plan.h"

namespace heddle {

class StepChannel {
 public:
  explicit StepChannel(int ranks) : taken_(static_cast<std::size_t>(ranks)) {}

  // Rank 0. Returns when every other rank has joined. Throws as check() does, and Timeout after kLongestWait.
  void await_joined();

  // Rank 0. Hands over a copy of the plan, once the others have taken the one before. Throws as await_joined.
  void send(const StepPlan& plan);

  // Rank 0. No more steps come.
  void close();

  // Another rank, once, when it is ready for steps.
  void join();

  // Another rank. Sleeps until the next step comes, without a deadline: an idle model waits for its user. False after
  // close(), and when a rank has failed.
  bool receive(int rank, StepPlan& plan);

  // Any rank: it takes part in no further step. The first such error is what check() throws on every rank.
  void fail(int rank, std::exception_ptr error);

  // Throws the error of the rank that failed first, naming it (rank_error.h).
  void check() const;

 private:
  template <class Done>
  void wait_for_others(std::unique_lock<std::mutex>& lock, const char* what, const Done& done);
  void check_locked() const;

  mutable std::mutex mutex_;
  std::condition_variable sent_or_over_;  // for ranks that wait for a step
  std::condition_variable heard_;         // for rank 0
  StepPlan plan_;
  std::uint64_t num_sent_ = 0;
  std::vector<std::uint64_t> taken_;  // [ranks]: steps that each has taken; rank 0's is not used
  int num_joined_ = 1;
  bool closed_ = false;
  int failed_rank_ = -1;
  std::exception_ptr error_;  // of failed_rank_
};

}  // namespace heddle
