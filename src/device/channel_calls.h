// The calls of a channel, for groups: channel.h says how they belong together.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/channel.h"
#include "device/one_sided.h"

namespace heddle {

// Waits until `receiver` has no more use for what this rank's slot `index` there holds (acquire: what is written from
// here on comes after the receiver's reads). Every lane must call it, and all get the same result; so with the functions
// below.
template <VotingGroup G, PeerAddressing P>
[[nodiscard]] HEDDLE_HOST_DEVICE bool claim(const G& group, const P& peers, int receiver, const Channel& channel,
                                            int index, Tag tag) {
  return wait_next(group, peers, receiver, channel.credit(receiver, index), tag);
}

// After all writes of the group: a release at system scope.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void fill(const G& group, const P& peers, int receiver, const Channel& channel, int index) {
  signal_next(group, peers, receiver, &channel.slot(peers.rank, index)->full);
}

// claim() of a group that fills the slot with others: the credit stays until the last fill_part, which comes after all of
// the round's calls of this, so that they may read the count.
template <VotingGroup G, PeerAddressing P>
[[nodiscard]] HEDDLE_HOST_DEVICE bool await_credit(const G& group, const P& peers, int receiver, const Channel& channel,
                                                   int index, Tag tag) {
  const Semaphore& credit = *channel.credit(receiver, index);
  return agree(group, group.lane() != 0 ||
                          spin_until(peers.waits, why(peers, receiver, tag), &credit.arrived, credit.taken + 1));
}

// fill() of one of some groups, after all writes of the group. Their shares of a round add up to `parts`, which all must
// name alike. The last one takes the credit and fills the slot: a release at system scope of what all have written.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void fill_part(const G& group, const P& peers, int receiver, const Channel& channel, int index,
                                  std::uint64_t parts, std::uint64_t share = 1) {
  group.sync();
  if (group.lane() != 0) return;
  std::uint64_t* const sent = channel.sent(receiver, index);
  if (parts > share) {
    if (atomic_add<Order::acq_rel, Scope::gpu>(sent, share) + share < parts) return;
    *sent = 0;  // all have added, and the next round comes after the next credit
  }
  channel.credit(receiver, index)->taken += 1;
  atomic_add<Order::release, Scope::system>(peers.at(receiver, &channel.slot(peers.rank, index)->full.arrived), 1);
}

// Waits until slot `index` of `sender` is full in this round; then every lane sees what was written before `fill`. Any
// number of groups may wait for one slot, each once in a round. The round ends with the last give_back; a group that
// goes on to the slot's next round in the same launch must be its only consumer.
template <VotingGroup G, PeerAddressing P>
[[nodiscard]] HEDDLE_HOST_DEVICE bool await_full(const G& group, const P& peers, int sender, const Channel& channel,
                                                 int index, Tag tag) {
  const Semaphore& full = channel.slot(sender, index)->full;
  return agree(group,
               group.lane() != 0 || spin_until(peers.waits, why(peers, sender, tag), &full.arrived, full.taken + 1));
}

// This consumer reads the slot no more. The last of `consumers` ends the round and gives `sender` its credit. All of
// them must have called await_full in this round, and all name the same number.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void give_back(const G& group, const P& peers, int sender, const Channel& channel, int index,
                                  std::uint64_t consumers) {
  group.sync();
  if (group.lane() != 0) return;
  ChannelSlot* const slot = channel.slot(sender, index);
  if (consumers > 1) {
    if (atomic_add<Order::acq_rel, Scope::gpu>(&slot->consumed, 1) + 1 < consumers) return;
    slot->consumed = 0;  // all have added, and the next round comes after the credit
  }
  slot->full.taken += 1;
  atomic_add<Order::release, Scope::system>(peers.at(sender, &channel.credit(peers.rank, index)->arrived), 1);
}

}  // namespace heddle
