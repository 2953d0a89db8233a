// gather_rows on a GPU. gather_rows.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/rows/gather_rows.h"

namespace heddle {

void gather_rows_sm90(const GatherRowsParams& params, const Lane& lane);

}  // namespace heddle
