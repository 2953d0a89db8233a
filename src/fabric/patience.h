// How long a wait on the CPU spins before it yields.
#pragma once

#include <cstdint>

namespace heddle {

// How often a wait looks at a flag before it calls sched_yield between looks. If each rank of this machine can have a
// core of its own, for some milliseconds: on a busy machine a yield costs a time slice. If ranks share cores, only
// briefly: the rank that is waited for needs the core.
std::uint32_t looks_before_yield(int ranks_on_this_machine);

}  // namespace heddle
