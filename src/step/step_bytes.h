// A step as bytes, for another process of the same program.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "step/step_plan.h"

namespace heddle {

// Replaces the contents of `bytes`, whose memory it keeps.
void pack(const StepPlan& plan, std::vector<std::byte>& bytes);

// Throws InvalidArgument where the bytes are not those of a step.
void unpack(std::span<const std::byte> bytes, StepPlan& plan);

}  // namespace heddle
