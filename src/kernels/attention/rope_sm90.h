// rope on a GPU. rope.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/rope.h"

namespace heddle {

void rope_sm90(const RopeParams& params, const Lane& lane);

}  // namespace heddle
