// A team: n functions that all make progress concurrently and may therefore wait for each other: ranks, or the blocks
// of a cooperating grid. (Pieces of ThreadPool::parallel_for must not.)
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/deadline.h"
#include "base/function_ref.h"

namespace heddle {

struct TeamState;

// A member's view of its team: its rank, and ways to wait for others.
class TeamMember {
 public:
  int rank() const { return rank_; }
  int size() const;

  // Waits, yielding the core, until `flag` >= `target`. Acquire: sees everything written before the release of the
  // flag. Throws Timeout after the team's longest wait (message: rank, tag, expected, observed), and Failure when
  // another member has thrown, because the flag may then never come.
  void wait_until(const std::atomic<std::uint64_t>& flag, std::uint64_t target, std::string_view tag);

  // Returns when every member has called it equally often; all members then see what any member wrote before.
  void barrier();

 private:
  friend void run_team(int, FunctionRef<void(TeamMember&)>, Deadline::Clock::duration);

  TeamMember(TeamState& state, int rank) : state_(&state), rank_(rank) {}

  TeamState* state_;
  int rank_;
  std::uint64_t barriers_passed_ = 0;
};

// Runs member(rank 0..size-1), each on its own thread, and returns when all have returned. If members throw, the
// others' waits end, and the first exception is rethrown. `longest_wait` bounds each wait, but not a member that
// computes. Throws Failure when the system cannot start a thread.
void run_team(int size, FunctionRef<void(TeamMember&)> member, Deadline::Clock::duration longest_wait = kLongestWait);

}  // namespace heddle
