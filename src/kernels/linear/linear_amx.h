// `linear` of bfloat16 with bfloat16 on the tiles of AMX (Intel's Sapphire Rapids and later): sixteen times the products
// of a vector unit, in an order of their own (README.md).
#pragma once

#include "kernels/linear/linear_bf16_dot.h"

namespace heddle {

// Null where the processor, the system or this build does not have it. The first call asks Linux for the process's
// permission to use tiles.
LinearRows linear_rows_amx();

}  // namespace heddle
