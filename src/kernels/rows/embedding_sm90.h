// embedding on a GPU. embedding.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/rows/embedding.h"

namespace heddle {

void embedding_sm90(const EmbeddingParams& params, const Lane& lane);

}  // namespace heddle
