// Ctrl-C as a question that a loop asks between its steps.
#pragma once

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
};

}  // namespace heddle
