// Schedules evaluated in a kernel.
#pragma once

#include <vector>

#include "schedule/transfer.h"

namespace heddle::schedule {

// at(rank, step) for all ranks, then all steps, each evaluated by a thread of the first GPU. Defined for the schedules
// of the test. Empty without a GPU.
template <class S>
std::vector<Transfer> at_on_device(const S& schedule);

}  // namespace heddle::schedule
