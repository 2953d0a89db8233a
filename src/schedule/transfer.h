// What one rank does in one step of a schedule, and the arithmetic that all schedules share.
#pragma once

#include <type_traits>

namespace heddle::schedule {

inline constexpr int kNobody = -1;      // this rank sends, or receives, nothing in this step
inline constexpr int kEverybody = -2;   // as `to`: one multicast to all others of the team
inline constexpr int kEveryOther = -3;  // as a piece of torus attention: all pieces but one's own

// One step of one rank. The rank sends `count` slots of its send buffer, beginning at slot `send`, to rank `to`. It
// receives as many from rank `from` into its receive buffer, beginning at slot `receive`. Where a schedule says so, the
// two buffers are one. All sends of a step carry the data from before the step. A rank that pushes finds the slot where
// its data land on the peer as `at(to, step).receive`; one that pulls finds its source as `at(from, step).send`.
struct Transfer {
  int to = kNobody;
  int from = kNobody;
  int send = 0;
  int receive = 0;
  int count = 1;        // slots; the same at both ends
  bool reduce = false;  // true: add (or max) the message into the slot; false: overwrite the slot

  friend constexpr bool operator==(const Transfer&, const Transfer&) = default;
};

// The remainder that is never negative: mod(-1, 4) is 3. Precondition: size > 0.
constexpr int mod(int value, int size) {
  const int remainder = value % size;
  return remainder < 0 ? remainder + size : remainder;
}

// A precondition. In a constant expression a violation does not compile ("division by zero" in `require`, called from
// the line that broke it). At run time it costs and does nothing.
constexpr int require(bool met) {
  return std::is_constant_evaluated() ? 1 / static_cast<int>(met) : 1;
}

// Precondition: value >= 0, divisor > 0.
constexpr int ceil_div(int value, int divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

constexpr int distance(int a, int b) {
  return a < b ? b - a : a - b;
}

constexpr bool is_power_of_two(int value) {
  return value > 0 && (value & (value - 1)) == 0;
}

// log2 of a power of two.
constexpr int log2_exact(int value) {
  require(is_power_of_two(value));
  int log = 0;
  while (value > 1) {
    value /= 2;
    ++log;
  }
  return log;
}

}  // namespace heddle::schedule
