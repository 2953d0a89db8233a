// kv_write on a GPU. kv_write.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/kv_write.h"

namespace heddle {

void kv_write_sm90(const KvWriteParams& params, const Lane& lane);

}  // namespace heddle
