// Numbers counted by size, as Prometheus takes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::server {

// Upper bounds; a last bucket has none.
inline constexpr std::array<double, 22> kTimeBounds{0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.025, 0.04,
                                                    0.06,   0.08,  0.1,   0.15,  0.25,  0.5,   0.75,  1,
                                                    2.5,    5,     10,    20,    40,    80};  // seconds
inline constexpr std::array<double, 18> kTokenBounds{1,    2,    5,    10,    20,    50,    100,    200,    500,
                                                     1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
inline constexpr std::array<double, 13> kStepTokenBounds{1,   8,    16,   32,   64,   128,  256,
                                                         512, 1024, 2048, 4096, 8192, 16384};
inline constexpr std::array<double, 7> kSampleBounds{1, 2, 5, 10, 20, 50, 100};

class Histogram {
 public:
  // `bounds`: ascending, and static.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  void add(double value) {
    const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += value;
    ++count_;
  }

  std::span<const double> bounds() const { return bounds_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }  // not cumulative
  double sum() const { return sum_; }
  std::int64_t count() const { return count_; }

 private:
  std::span<const double> bounds_;
  std::vector<std::int64_t> counts_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace heddle::server
