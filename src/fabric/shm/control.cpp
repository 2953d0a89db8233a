#include "fabric/shm/control.h"

#include <algorithm>

#include "base/error.h"
#include "device/atomics.h"
#include "device/spin.h"

namespace heddle {

int number_of(ShmControl& control, std::span<const int> team) {
  try {
    return number_of_team(control.teams, team);
  } catch (const Failure&) {
    if (in_trouble(control)) throw_trouble(control);
    throw;
  }
}

RankStatus status_of(const ShmControl& control, int rank) {
  const RankSlot& slot = control.ranks[rank];
  const std::uint32_t state = atomic_load(&slot.state);
  if (state == RankSlot::absent) return {.stage = RankStatus::absent};  // the rest may just be being written
  return {.stage = state == RankSlot::left ? RankStatus::left : RankStatus::joined,
          .process = slot.process == 0 ? ProcessIdentity{} : process_of_this_machine(slot.process, slot.start_time),
          .waits_for = static_cast<int>(atomic_load<Order::relaxed>(&slot.waits_for)) - 1};
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
