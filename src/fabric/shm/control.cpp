#include "fabric/shm/control.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "device/atomics.h"
#include "device/spin.h"

namespace heddle {
namespace {

// Waits for a writer who is at it. One that was killed there never ends, hence the limit.
bool becomes(const std::uint32_t& state, std::uint32_t wanted) {
  constexpr std::uint64_t kLongEnough = 1'000'000'000;
  const std::uint64_t start = now_nanoseconds();
  while (atomic_load(&state) != wanted) {
    if (now_nanoseconds() - start > kLongEnough) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TeamSlot& team_slot(ShmControl& control, std::span<const int> team) {
  std::uint64_t members[2] = {};
  for (const int rank : team) members[rank / 64] |= std::uint64_t{1} << (rank % 64);
  for (TeamSlot& slot : control.teams) {
    if (atomic_load(&slot.state) == TeamSlot::empty &&
        atomic_compare_exchange(&slot.state, TeamSlot::empty, TeamSlot::being_written) == TeamSlot::empty) {
      std::copy_n(members, 2, slot.members);
      atomic_store(&slot.state, TeamSlot::complete);
      return slot;
    }
    if (!becomes(slot.state, TeamSlot::complete)) break;
    if (std::equal(members, members + 2, slot.members)) return slot;
  }
  if (in_trouble(control)) throw_trouble(control);
  throw_error<Failure>("shm keeps count of the barriers of {} teams at most", kMaxShmTeams);
}

std::string name_of_rank(const ShmControl& control, int rank) {
  const std::int32_t process = control.ranks[rank].process;
  return process == 0 ? fmt::format("rank {}", rank) : fmt::format("rank {} (process {})", rank, process);
}

void declare_trouble(ShmControl& control, Trouble::Kind kind, int rank, int about, std::string_view text) {
  Trouble& trouble = control.trouble;
  if (atomic_compare_exchange(&trouble.state, Trouble::none, Trouble::being_written) == Trouble::none) {
    trouble.kind = kind;
    const std::size_t length = std::min(text.size(), sizeof(trouble.text) - 1);
    std::copy_n(text.data(), length, trouble.text);
    trouble.text[length] = '\0';
    atomic_store(&trouble.state, Trouble::complete);
  }
  report(control.record, {rank, about, "lost a rank"}, 0, 0);
}

bool in_trouble(const ShmControl& control) {
  return atomic_load(&control.record.state) != WaitRecord::empty ||
         atomic_load(&control.trouble.state) != Trouble::none;
}

void throw_trouble(ShmControl& control) {
  const Trouble& trouble = control.trouble;
  if (!becomes(trouble.state, Trouble::complete))
    throw_error<Failure>("another rank has given up, and did not say why");
  switch (trouble.kind) {
    case Trouble::timeout:
      throw Timeout(trouble.text);
    case Trouble::invalid_argument:
      throw InvalidArgument(trouble.text);
    case Trouble::input:
      throw InputError(trouble.text);
    default:
      throw Failure(trouble.text);
  }
}

}  // namespace heddle
