// Barriers of one block with the same block of all ranks of a team, by a flag for each pair of ranks.
#pragma once

#include <cstdint>

#include "device/one_sided.h"

namespace heddle {

// What any of these blocks wrote before a barrier, to any rank, is visible to all of them after it: release and acquire
// at system scope.
template <Group G, PeerAddressing P>
class BlockBarrier {
 public:
  // `flags`, [peers.size], belong to this block alone and lie in symmetric memory. `passed` counts the barriers of this
  // block so far, over all kernels, and starts at 0. It lies in memory of the rank, so that a captured graph may be
  // replayed.
  HEDDLE_HOST_DEVICE BlockBarrier(const G& group, const P& peers, std::uint64_t* flags, std::uint64_t& passed, Tag tag)
      : group_(group), peers_(peers), flags_(flags), counter_(passed), passed_(passed), tag_(tag) {}

  // Every lane must call it, and all get the same answer: false when a wait has given up.
  [[nodiscard]] HEDDLE_HOST_DEVICE bool operator()() {
    ++passed_;
    group_.sync();  // every lane has read the count, and written what the others are to see
    if (group_.lane() == 0) counter_ = passed_;
    for (int i = group_.lane(); i < peers_.size; i += group_.lanes())
      if (i != peers_.rank) atomic_store<Order::release, Scope::system>(peers_.at(i, flags_ + peers_.rank), passed_);
    bool come = true;
    for (int i = group_.lane(); i < peers_.size; i += group_.lanes())
      if (i != peers_.rank) come = come && spin_until(peers_.waits, why(peers_, i, tag_), flags_ + i, passed_);
    return agree(group_, come);
  }

 private:
  const G& group_;
  const P& peers_;
  std::uint64_t* flags_;
  std::uint64_t& counter_;
  std::uint64_t passed_;
  Tag tag_;
};

}  // namespace heddle
