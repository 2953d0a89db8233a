#include "collectives/call_check.h"

#include "base/error.h"
#include "collectives/communicator.h"
#include "device/one_sided.h"
#include "schedule/all_to_all.h"

namespace heddle {
namespace {

constexpr const char* kFieldNames[] = {"collective",
                                       "dtype",
                                       "count",
                                       "root",
                                       "kind of memory",
                                       "first buffer's place in the heap",
                                       "second buffer's place in the heap"};

std::string value_text(int field, std::uint64_t value) {
  if (field == 0) return std::string(name_of(static_cast<Collective>(value)));
  if (field == 1) return std::string(name_of(static_cast<DType>(value)));
  if (field == 4) return value == static_cast<std::uint64_t>(Memory::symmetric) ? "symmetric" : "any";
  return std::to_string(value);
}

}  // namespace

std::string difference_of(const CallSignature& mine, int rank, const CallSignature& other, int other_rank) {
  for (int field = 0; field < CallSignature::kFields; ++field)
    if (mine.values[field] != other.values[field])
      return fmt::format("{}: the ranks' calls differ in their {}: rank {} has {}, rank {} has {}",
                         value_text(0, mine.values[0]), kFieldNames[field], rank, value_text(field, mine.values[field]),
                         other_rank, value_text(field, other.values[field]));
  return {};
}

CallCheck::CallCheck(const Peers& peers, CallSignature* signatures, std::uint64_t* flags)
    : peers_(peers), signatures_(signatures), flags_(flags), heard_(static_cast<std::size_t>(peers.size), 0) {}

// Two sets of slots suffice: a rank writes those of call k + 2 after it has read all signatures of call k + 1, which
// the others announced after they had read its signature of call k. Calls are counted here, in tasks: after an error
// the same calls are skipped on all ranks.
void CallCheck::announce(const CallSignature& mine) {
  const std::uint64_t number = mine_.number + 1;
  mine_ = mine;
  mine_.number = number;
  CallSignature* const own = signatures_ + number % 2 * heard_.size() + peers_.rank;
  for (int step = 1; step < peers_.size; ++step) {
    CallSignature* const there = peers_.at(schedule::AllToAll{peers_.size}.at(peers_.rank, step).to, own);
    for (int field = 0; field < CallSignature::kFields; ++field)
      atomic_store<Order::relaxed>(&there->values[field], mine.values[field]);
    atomic_store<Order::release>(&there->number, number);
  }
}

WaitReason CallCheck::reason(int peer) const {
  Tag tag;
  name_of(static_cast<Collective>(mine_.values[0])).copy(tag.text, Tag::kLongest);
  return why(peers_, peer, tag);
}

bool CallCheck::hear(int world_rank) {
  int peer = 0;
  while (peer < peers_.size && peers_.world_rank(peer) != world_rank) ++peer;
  require(peer < peers_.size, "rank {} is not of this team", world_rank);
  std::uint64_t& heard = heard_[static_cast<std::size_t>(peer)];
  if (heard == mine_.number) return true;
  const CallSignature& theirs = signatures_[mine_.number % 2 * heard_.size() + static_cast<std::size_t>(peer)];
  if (!spin_until(peers_.waits, reason(peer), &theirs.number, mine_.number)) return false;
  CallSignature other;
  for (int field = 0; field < CallSignature::kFields; ++field)
    other.values[field] = atomic_load<Order::relaxed>(&theirs.values[field]);
  const std::string difference = difference_of(mine_, peers_.world_rank(peers_.rank), other, world_rank);
  if (!difference.empty()) end(difference);
  heard = mine_.number;
  return true;
}

bool CallCheck::hear_all() {
  for (int step = 1; step < peers_.size; ++step)
    if (!hear(peers_.world_rank(schedule::AllToAll{peers_.size}.at(peers_.rank, step).to))) return false;
  return true;
}

void CallCheck::end(const std::string& difference) {
  for (int p = 0; p < peers_.size; ++p)
    if (p != peers_.rank) atomic_store<Order::release>(peers_.at(p, flags_ + peers_.rank), mine_.number);
  for (int p = 0; p < peers_.size; ++p)
    if (p != peers_.rank && !spin_until(peers_.waits, reason(p), flags_ + p, mine_.number)) break;
  throw InvalidArgument(difference);
}

}  // namespace heddle
