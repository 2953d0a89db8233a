// group_rows on a GPU. group_rows.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/moe/group_rows.h"

namespace heddle {

void group_rows_sm90(const GroupRowsParams& params, const Lane& lane);

}  // namespace heddle
