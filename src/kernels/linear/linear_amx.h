// `linear` of bfloat16 with bfloat16 on AMX tiles (Intel's Sapphire Rapids and later), which multiply sixteen times as
// fast as a vector unit and sum in their own order (README.md).
#pragma once

#include "kernels/linear/linear_bf16_dot.h"

namespace heddle {

// Null if the processor, the system or this build lacks AMX. The first call requests the process's permission from
// Linux.
LinearRows linear_rows_amx();

}  // namespace heddle
