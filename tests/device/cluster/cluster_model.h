// A thread block cluster on threads of the CPU: each block is a thread with shared memory of its own, and what blocks push
// to each other lands late and out of order.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "../mbarrier_model.h"
#include "device/cluster/cluster_team.h"

namespace heddle {

// Shared: the layout of a block's shared memory.
template <class Shared>
class ClusterModel {
 public:
  explicit ClusterModel(int size) : meeting_(size) {
    for (int rank = 0; rank < size; ++rank) blocks_.push_back(std::make_unique<Block>());
  }

  // A block as its cluster sees it (cluster_team.h).
  class Team {
   public:
    Team(ClusterModel& cluster, int rank) : cluster_(cluster), rank_(rank), random_(static_cast<unsigned>(rank)) {}

    int lane() const { return 0; }
    int lanes() const { return 1; }
    int block() const { return rank_; }
    int blocks() const { return static_cast<int>(cluster_.blocks_.size()); }
    void sync() const {}
    int arrivals() const { return 1; }

    void push(int to, Vector16* place, const Vector16& value, MbarrierModel& barrier) const {
      Vector16* const there = at(to, place);
      MbarrierModel* const arrived = at(to, &barrier);
      cluster_.block(rank_).wires[random_() % kWires].enqueue([there, value, arrived, late = random_() % 16 == 0] {
        if (late) std::this_thread::yield();
        *there = value;
        arrived->complete(sizeof(Vector16));
      });
      cluster_.bytes_ += static_cast<std::int64_t>(sizeof(Vector16));
    }

    void push_range(int to, Vector16* place, const Vector16* from, int count, MbarrierModel& barrier) const {
      Vector16* const there = at(to, place);
      MbarrierModel* const arrived = at(to, &barrier);
      const std::size_t bytes = sizeof(Vector16) * static_cast<std::size_t>(count);
      cluster_.block(rank_).wires[random_() % kWires].enqueue([there, from, bytes, arrived] {
        std::memcpy(there, from, bytes);
        arrived->complete(static_cast<std::uint32_t>(bytes));
      });
      cluster_.bytes_ += static_cast<std::int64_t>(bytes);
    }
    void fence_for_bulk() const {}

    void release(int to, MbarrierModel& barrier) const { at(to, &barrier)->arrive(); }

    void meet() const { cluster_.meeting_.arrive_and_wait(); }

    // Delays a block now and then, so that others run ahead of it.
    void dawdle() const {
      for (unsigned i = random_() % 4; i > 0; --i) std::this_thread::yield();
    }

   private:
    template <class Place>
    Place* at(int to, Place* mine) const {
      const auto offset =
          reinterpret_cast<std::byte*>(mine) - reinterpret_cast<std::byte*>(&cluster_.block(rank_).shared);
      return reinterpret_cast<Place*>(reinterpret_cast<std::byte*>(&cluster_.block(to).shared) + offset);
    }

    ClusterModel& cluster_;
    int rank_;
    mutable std::minstd_rand random_;
  };

  Shared& shared(int rank) { return block(rank).shared; }
  std::int64_t bytes_pushed() const { return bytes_; }

  // body(team, shared) on a thread for each block, once all have been prepared by prepare(team, shared).
  template <class Prepare, class Body>
  void run(Prepare prepare, Body body) {
    std::vector<std::unique_ptr<Team>> teams;
    for (int rank = 0; rank < static_cast<int>(blocks_.size()); ++rank) {
      teams.push_back(std::make_unique<Team>(*this, rank));
      prepare(*teams.back(), shared(rank));
    }
    std::vector<std::jthread> threads;
    threads.reserve(teams.size());
    for (auto& team : teams) threads.emplace_back([&, team = team.get()] { body(*team, shared(team->block())); });
  }

 private:
  static constexpr std::size_t kWires = 2;
  struct Block {
    Shared shared{};
    TmaModel wires[kWires];
  };
  Block& block(int rank) { return *blocks_[static_cast<std::size_t>(rank)]; }

  std::vector<std::unique_ptr<Block>> blocks_;
  std::barrier<> meeting_;
  std::atomic<std::int64_t> bytes_ = 0;
};

}  // namespace heddle
