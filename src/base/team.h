// A team: n functions that all make progress at once, so that they may wait for each other: ranks, or the blocks of a
// cooperating grid. (Pieces of ThreadPool::parallel_for may not.)
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/deadline.h"
#include "base/function_ref.h"

namespace heddle {

struct TeamState;

// What one member of a team knows: its rank, and how to wait for others.
class TeamMember {
 public:
  int rank() const { return rank_; }
  int size() const;

  // Waits, yielding the core, until `flag` >= `target`; acquire: sees all that was written before the flag's release.
  // Throws Timeout after the team's longest wait (message: rank, tag, expected, observed), and Failure when another
  // member has thrown, since what is waited for may then never come.
  void wait_until(const std::atomic<std::uint64_t>& flag, std::uint64_t target, std::string_view tag);

  // Returns when every member has called it as often; what members wrote before is visible to all after.
  void barrier();

 private:
  friend void run_team(int, FunctionRef<void(TeamMember&)>, Deadline::Clock::duration);

  TeamMember(TeamState& state, int rank) : state_(&state), rank_(rank) {}

  TeamState* state_;
  int rank_;
  std::uint64_t barriers_passed_ = 0;
};

// Runs member(rank 0..size-1), each on a thread of its own, and returns when all have returned. If some throw, the
// others' waits end, and the first exception is rethrown. `longest_wait` bounds each wait; nothing bounds a member that
// computes. Throws Failure when the system gives no more threads.
void run_team(int size, FunctionRef<void(TeamMember&)> member, Deadline::Clock::duration longest_wait = kLongestWait);

}  // namespace heddle
