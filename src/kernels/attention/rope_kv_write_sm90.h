#pragma once

#include "kernels/attention/rope_kv_write.h"

namespace heddle {

// Whether the kernel takes these dtypes, strides and alignments; otherwise rope and kv_write run one after the other.
bool rope_kv_write_takes(const RopeKvWriteParams& params);

void rope_kv_write_sm90(const RopeKvWriteParams& params, const Lane& lane);

}  // namespace heddle
