// copy_pages on a GPU. copy_pages.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/copy_pages.h"

namespace heddle {

void copy_pages_sm90(const CopyPagesParams& params, const Lane& lane);

}  // namespace heddle
