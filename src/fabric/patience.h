// How long a wait on the CPU keeps its core to itself.
#pragma once

#include <cstdint>

namespace heddle {

// Looks at a flag before a wait calls sched_yield between looks. Where each of the ranks of this machine can have a
// core of its own, some milliseconds' worth: on a machine with other work a yield costs a time slice, in which the rank
// that was waited for comes, waits, and yields in turn. Where ranks share cores, few: whom one waits for needs the
// core.
std::uint32_t looks_before_yield(int ranks_on_this_machine);

}  // namespace heddle
