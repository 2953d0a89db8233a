#include "fabric/nvlink/team_table.h"

#include <thread>

#include "base/error.h"
#include "device/atomics.h"
#include "device/spin.h"

namespace heddle {
namespace {

// Until whoever is at it, some instructions from here, has written an entry; one that was killed there never has.
bool becomes_complete(const std::uint32_t& state, std::uint32_t complete) {
  constexpr std::uint64_t kLongEnough = 1'000'000'000;
  const std::uint64_t start = now_nanoseconds();
  while (atomic_load(&state) != complete) {
    if (now_nanoseconds() - start > kLongEnough) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TeamTable::TeamTable(Fabric& host)
    : entries_(host.peers().at(0, reinterpret_cast<Entry*>(host.allocate(kMostTeams * sizeof(Entry)).data))) {}

int TeamTable::number_of(std::span<const int> team) {
  std::uint64_t members[2] = {};
  for (const int rank : team) members[rank / 64] |= std::uint64_t{1} << rank % 64;
  for (int i = 0; i < kMostTeams; ++i) {
    Entry& entry = entries_[i];
    if (atomic_compare_exchange(&entry.state, Entry::empty, Entry::being_written) == Entry::empty) {
      entry.members[0] = members[0];
      entry.members[1] = members[1];
      atomic_store(&entry.state, Entry::complete);
      return i;
    }
    if (!becomes_complete(entry.state, Entry::complete))
      throw_error<Failure>("nvlink: a rank was lost while it entered a team");
    if (entry.members[0] == members[0] && entry.members[1] == members[1]) return i;
  }
  throw_error<Failure>("nvlink: more than {} different teams", kMostTeams);
}

}  // namespace heddle
