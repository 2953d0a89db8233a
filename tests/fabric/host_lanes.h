// Threads of the CPU as the lanes of one group, as a GPU has them: what lanes promise each other runs under
// ThreadSanitizer.
#pragma once

#include <cstdint>
#include <thread>

#include "device/atomics.h"
#include "device/group.h"

namespace heddle {

// What the lanes of a group share. Nobody waits for long: lanes that spin for a peer give up by that wait's deadline.
struct LaneTeam {
  int lanes;
  std::uint64_t arrived = 0;
  std::uint64_t round = 0;
  std::uint64_t refused[2] = {};  // by the round's parity
};

class HostLanes {
 public:
  HostLanes(LaneTeam& team, int lane) : team_(&team), lane_(lane) {}

  int lane() const { return lane_; }
  int lanes() const { return team_->lanes; }
  int block() const { return 0; }
  int blocks() const { return 1; }
  void sync() const { static_cast<void>(all(true)); }
  bool all(bool vote) const {
    const auto round = atomic_load<Order::relaxed>(&team_->round);  // it ends when this lane has come
    std::uint64_t& refused = team_->refused[round % 2];
    if (!vote) atomic_store<Order::relaxed>(&refused, 1);
    if (atomic_add(&team_->arrived, 1) + 1 == static_cast<std::uint64_t>(team_->lanes)) {
      atomic_store<Order::relaxed>(&team_->arrived, 0);
      atomic_store<Order::relaxed>(&team_->refused[(round + 1) % 2], 0);  // all have read the last round's
      atomic_store(&team_->round, round + 1);
    } else {
      while (atomic_load(&team_->round) == round) std::this_thread::yield();
    }
    return atomic_load<Order::relaxed>(&refused) == 0;
  }

 private:
  LaneTeam* team_;
  int lane_;
};
static_assert(VotingGroup<HostLanes>);

}  // namespace heddle
