// The memory of the paged key-value cache.
#pragma once

#include <span>

#include "base/buffer.h"
#include "base/lane.h"
#include "step/kv_pages.h"
#include "step/step_plan.h"

namespace heddle {

class KvCache {
 public:
  // Allocates memory for `shape` (its data pointer is ignored). Throws Failure that names tokens and bytes when memory
  // is short.
  KvCache(KvPages shape, Device device = {});

  const KvPages& pages() const { return pages_; }

  // Enqueues the copies, in order, over all planes and layers.
  void copy_pages(std::span<const PageCopy> copies, const Lane& lane);

 private:
  void copy_planes(int first, int num_planes, std::span<const PageCopy> copies, const Lane& lane);

  Buffer memory_;
  KvPages pages_;
};

}  // namespace heddle
