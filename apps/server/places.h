// How many answers may run or wait: a part of the places is kept for each owner, the rest is for whoever comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace heddle::server {

// With several owners, half of the queue's places are kept, an equal number for each and at least one: an owner that fills
// the rest cannot shut out another. With one owner, nothing is kept.
class Places {
 public:
  Places(int num_running, int num_waiting, std::size_t num_owners)
      : kept_(num_owners < 2 ? 0
                             : std::max(1, static_cast<int>(static_cast<std::size_t>(num_waiting) / (2 * num_owners)))),
        shared_(std::max(0, num_running + num_waiting - kept_ * static_cast<int>(num_owners))) {}

  // Takes `count` places, or none of them.
  bool take(std::uint64_t owner, int count) {
    const auto found = taken_by_.find(owner);
    const int own = found == taken_by_.end() ? 0 : found->second;
    const int more = beyond_kept(own + count) - beyond_kept(own);
    if (more > 0 && shared_taken_ + more > shared_) return false;
    shared_taken_ += more;
    taken_ += count;
    taken_by_[owner] = own + count;
    return true;
  }

  void give_back(std::uint64_t owner, int count) {
    const auto found = taken_by_.find(owner);
    shared_taken_ -= beyond_kept(found->second) - beyond_kept(found->second - count);
    taken_ -= count;
    found->second -= count;
    if (found->second == 0) taken_by_.erase(found);
  }

  int taken() const { return taken_; }
  int most_of_one() const { return shared_ + kept_; }

 private:
  int beyond_kept(int count) const { return std::max(0, count - kept_); }

  int kept_;    // for each owner
  int shared_;  // beside those
  int taken_ = 0;
  int shared_taken_ = 0;
  std::map<std::uint64_t, int> taken_by_;
};

}  // namespace heddle::server
