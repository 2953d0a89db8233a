// The shares of steps as a picture.
#pragma once

#include <span>
#include <string>

#include "base/trace_report.h"

namespace heddle {

// A stacked bar of the time of a step for each entry, as SVG: compute, transfer, launch tax, bulk-synchronous tax, and,
// hatched inside them, the inter-kernel tax.
std::string step_bars_svg(std::span<const StepShares> all);

}  // namespace heddle
