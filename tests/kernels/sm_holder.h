// Blocks that hold SMs of the first GPU for a while, as kernels do that wait for another rank.
#pragma once

#include "base/pinned_buffer.h"
#include "base/stream.h"

namespace heddle {

class SmHolder {
 public:
  // Returns once `num_sms` blocks, each of which leaves no room for another on its SM, have started. They end when this
  // is destroyed, and after 30 s in any case.
  explicit SmHolder(int num_sms);
  SmHolder(const SmHolder&) = delete;
  SmHolder& operator=(const SmHolder&) = delete;
  ~SmHolder();

  bool still_holds() const;  // false: the 30 s are over, and what ran beside it may have waited for that

 private:
  Stream stream_;
  int num_blocks_;
  PinnedBuffer words_;  // whether the blocks may end; of each, whether it has started, and has ended by itself
};

}  // namespace heddle
