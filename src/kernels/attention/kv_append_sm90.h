// kv_append on a GPU. kv_append.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/kv_append.h"

namespace heddle {

void kv_append_sm90(const KvAppendParams& params, const Lane& lane);

}  // namespace heddle
