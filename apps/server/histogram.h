// Times counted by size, as Prometheus takes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::server {

// Upper bounds in seconds; a last bucket has none.
inline constexpr std::array<double, 22> kTimeBounds{0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.025, 0.04,
                                                    0.06,   0.08,  0.1,   0.15,  0.25,  0.5,   0.75,  1,
                                                    2.5,    5,     10,    20,    40,    80};

class TimeHistogram {
 public:
  void add(double seconds) {
    const auto bucket = std::ranges::lower_bound(kTimeBounds, seconds) - kTimeBounds.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += seconds;
    ++count_;
  }

  const std::array<std::int64_t, kTimeBounds.size() + 1>& counts() const { return counts_; }  // not cumulative
  double sum() const { return sum_; }
  std::int64_t count() const { return count_; }

 private:
  std::array<std::int64_t, kTimeBounds.size() + 1> counts_{};
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace heddle::server
