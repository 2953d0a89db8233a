// Ctrl-C as a question that a loop asks between its steps.
#pragma once

#include <sys/types.h>

#include <span>

namespace heddle {

// While it lives, the first SIGINT or SIGTERM only sets a flag; the second ends the program as usual. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  bool interrupted() const { return signal() != 0; }
  int signal() const;  // the signal seen; 0: none

  // Forgets the signal seen: the next one is the first again.
  void rearm();

  // read(2) that a signal ends, also one seen before: -1 and EINTR.
  ssize_t read(int file, std::span<char> buffer) const;
};

}  // namespace heddle
