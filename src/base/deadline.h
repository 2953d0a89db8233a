// A deadline: a point in time after which a wait throws Timeout. Every wait has one.
#pragma once

#include <chrono>

namespace heddle {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(Clock::duration duration) { return Deadline(Clock::now() + duration); }

  bool passed() const { return Clock::now() >= time_; }
  Clock::time_point time() const { return time_; }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}

  Clock::time_point time_;
};

// Longer than the slowest valid step, and short enough that a lost peer ends the program.
inline constexpr std::chrono::minutes kLongestWait{10};

}  // namespace heddle
