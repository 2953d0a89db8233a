// Pearson's chi-square test of counts against probabilities.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace heddle {

// The value that chi-square exceeds once in 100 000, by Wilson and Hilferty's approximation of its quantiles.
inline double rare_chi_square(int degrees) {
  if (degrees == 0) return 1e-9;
  return degrees * std::pow(1 - 2 / (9.0 * degrees) + 4.265 * std::sqrt(2 / (9.0 * degrees)), 3);
}

// Whether draws with these `counts` may well come from `probabilities`. Outcomes that expect fewer than 5 are pooled.
inline testing::AssertionResult follows(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi_square = 0;
  int cells = 0;
  const auto add_cell = [&](double count, double mean) {
    chi_square += std::pow(count - mean, 2) / mean;
    ++cells;
  };
  double pooled_mean = 0;
  double pooled_count = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = probabilities[i] * draws;
    if (mean == 0 && counts[i] > 0)
      return testing::AssertionFailure() << "outcome " << i << " is impossible and came " << counts[i] << " times";
    if (mean >= 5) {
      add_cell(counts[i], mean);
    } else {
      pooled_mean += mean;
      pooled_count += counts[i];
    }
  }
  if (pooled_mean >= 5) add_cell(pooled_count, pooled_mean);
  const double bound = rare_chi_square(cells - 1);
  if (chi_square <= bound) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "chi-square is " << chi_square << ", of " << cells << " cells it exceeds "
                                     << bound << " once in 100 000";
}

}  // namespace heddle
