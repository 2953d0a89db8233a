// Ctrl-C as a flag that a loop checks between its steps.
#pragma once

#include <sys/types.h>

#include <span>

#include "base/function_ref.h"

namespace heddle {

// During its life, the first SIGINT or SIGTERM only sets a flag; the second ends the program as usual. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  bool interrupted() const { return signal() != 0; }
  int signal() const;  // the received signal; 0: none

  // Clears the flag: the next signal counts as the first again.
  void rearm();

  // read(2) that a signal interrupts, even one received before: -1 and EINTR. Calls `while_waiting` four times a second
  // while nothing comes, and passes on what that throws.
  ssize_t read(int file, std::span<char> buffer, FunctionRef<void()> while_waiting) const;
};

}  // namespace heddle
