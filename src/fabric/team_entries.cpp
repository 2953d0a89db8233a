#include "fabric/team_entries.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "device/atomics.h"
#include "device/spin.h"

namespace heddle {

bool becomes(const std::uint32_t& state, std::uint32_t wanted) {
  constexpr std::uint64_t kLongEnough = 1'000'000'000;
  const std::uint64_t start = now_nanoseconds();
  while (atomic_load(&state) != wanted) {
    if (now_nanoseconds() - start > kLongEnough) return false;
    std::this_thread::yield();
  }
  return true;
}

int number_of_team(std::span<TeamEntry> entries, std::span<const int> team) {
  std::uint64_t members[2] = {};
  for (const int rank : team) members[rank / 64] |= std::uint64_t{1} << (rank % 64);
  for (TeamEntry& entry : entries) {
    const int number = static_cast<int>(&entry - entries.data());
    if (atomic_load(&entry.state) == TeamEntry::empty &&
        atomic_compare_exchange(&entry.state, TeamEntry::empty, TeamEntry::being_written) == TeamEntry::empty) {
      std::copy_n(members, 2, entry.members);
      atomic_store(&entry.state, TeamEntry::complete);
      return number;
    }
    if (!becomes(entry.state, TeamEntry::complete))
      throw_error<Failure>("a rank was lost while it entered a team for a barrier");
    if (std::equal(members, members + 2, entry.members)) return number;
  }
  throw_error<Failure>("barriers of more than {} different teams", entries.size());
}

}  // namespace heddle
