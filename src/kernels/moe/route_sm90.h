// route on a GPU. route.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/moe/route.h"

namespace heddle {

void route_sm90(const RouteParams& params, const Lane& lane);

}  // namespace heddle
