// rmsnorm on a GPU. rmsnorm.h has what it does; its arguments are checked there.
#pragma once

#include <cstdint>

#include "kernels/rows/rmsnorm.h"

namespace heddle {

inline constexpr std::int64_t kMostRmsNormHidden = 49152;  // a unit lies in shared memory

void rmsnorm_sm90(const RmsNormParams& params, const Lane& lane);

}  // namespace heddle
