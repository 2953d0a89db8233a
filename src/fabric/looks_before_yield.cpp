#include "fabric/looks_before_yield.h"

#include <sched.h>

#include <cstdlib>

namespace heddle {

std::uint32_t looks_before_yield(int ranks_on_this_machine) {
  constexpr std::uint32_t kOwnCore = 1U << 18, kSharedCore = 256;
  if (std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr) return kOwnCore;  // this process may use its core alone
  cpu_set_t usable;
  const bool enough = sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) >= ranks_on_this_machine;
  return enough ? kOwnCore : kSharedCore;
}

}  // namespace heddle
