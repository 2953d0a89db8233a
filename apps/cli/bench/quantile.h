// Quantiles of samples.
#pragma once

#include <span>

namespace heddle {

// The q-quantile, linearly interpolated; 0 without samples.
double quantile(std::span<const double> samples, double q);
double median(std::span<const double> samples);

}  // namespace heddle
