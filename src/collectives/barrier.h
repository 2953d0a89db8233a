// A barrier in stream order: what any rank of the team wrote before it is visible to all after it.
#pragma once

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

// Enqueues.
void barrier(Communicator& communicator, const Lane& lane);

}  // namespace heddle
