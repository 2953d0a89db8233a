// What a kernel whose threads wait takes as a parameter: how long a wait may last, where it reports, and as what.
#pragma once

#include "base/stream.h"
#include "device/tag.h"
#include "device/wait_record.h"

namespace heddle {

struct KernelWaits {
  WaitLimit limit;
  Tag tag;  // which kernel, for the error
};

// For a kernel that is enqueued on `stream`, whose record must outlive it.
inline KernelWaits waits_of(const Stream& stream, Tag tag) {
  return {.limit = {.record = stream.wait_record()}, .tag = tag};
}

}  // namespace heddle
