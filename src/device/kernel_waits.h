// Parameters of a kernel whose threads wait: how long a wait may last, where it reports, and under which name.
#pragma once

#include "base/stream.h"
#include "device/tag.h"
#include "device/wait_record.h"

namespace heddle {

struct KernelWaits {
  WaitLimit limit;
  Tag tag;  // the kernel's name in the error
};

// For a kernel that is enqueued on `stream`. The stream's record must outlive it.
inline KernelWaits waits_of(const Stream& stream, Tag tag) {
  return {.limit = {.record = stream.wait_record()}, .tag = tag};
}

}  // namespace heddle
