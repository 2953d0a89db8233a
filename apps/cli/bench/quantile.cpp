#include "cli/bench/quantile.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace heddle {

double quantile(std::span<const double> samples, double q) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::span<const double> samples) {
  return quantile(samples, 0.5);
}

}  // namespace heddle
