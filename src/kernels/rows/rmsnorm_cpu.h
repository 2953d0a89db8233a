// rmsnorm() on the CPU, for operators that cut their work themselves.
#pragma once

#include <cstdint>

#include "kernels/rows/rmsnorm.h"

namespace heddle {

// Tokens [begin, end), on the calling thread; the same bits as rmsnorm(), which says what params must be.
void rmsnorm_tokens_cpu(const RmsNormParams& params, std::int64_t begin, std::int64_t end);

}  // namespace heddle
