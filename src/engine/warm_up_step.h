// Warm-up steps, run once for what happens only the first time (cuBLASLt loads its kernels, attributes are set), before
// ranks that share a GPU wait for each other. Their results are of no use.
#pragma once

#include "engine/step_memory.h"
#include "step/step_plan.h"

namespace heddle {

// Makes `plan` a step of that shape, or, where its longest sequence exceeds the cache, of as many tokens as that holds.
// All sequences write to the same pages, from the first on: the cache must be of no use yet.
void make_warm_up_step(const StepShape& shape, const ExecutorLimits& limits, StepPlan& plan);

}  // namespace heddle
