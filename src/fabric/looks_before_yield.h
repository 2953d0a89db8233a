// How long a wait on the CPU spins before it yields.
#pragma once

#include <cstdint>

namespace heddle {

// How often a wait looks at a flag before it calls sched_yield between looks. If each rank of this machine can have a
// core of its own, for some tenths of a millisecond, longer than ranks of a step mostly wait for each other: on a busy
// machine a yield costs a time slice, but so does a core that the rank which is waited for could have. If ranks share
// cores, only briefly.
std::uint32_t looks_before_yield(int ranks_on_this_machine);

}  // namespace heddle
