#pragma once

#include "kernels/attention/rope_append.h"

namespace heddle {

// Whether the kernel takes these dtypes, strides and alignments; otherwise rope and kv_append run one after the other.
bool rope_append_takes(const RopeAppendParams& params);

void rope_append_sm90(const RopeAppendParams& params, const Lane& lane);

}  // namespace heddle
