// The CPU time of this thread: a limit on it means the same on a busy machine and on an idle one.
#pragma once

#include <ctime>

namespace heddle::grammar {

inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace heddle::grammar
