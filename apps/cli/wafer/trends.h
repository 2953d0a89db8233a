// What the WaferLLM paper says in words of figures 9 and 10 and of its tables, beside what the costs say.
#pragma once

#include <string>
#include <vector>

#include "wafer/cost/plmr.h"

namespace heddle {

struct WaferTrend {
  std::string statement, published, predicted;
  bool holds = false;
};

// Of Cannon and SUMMA each statement names the synchronisation it is computed for: the paper does not say what its
// programs have, and most of what it says of them holds with barriers alone.
std::vector<WaferTrend> wafer_trends(const PlmrDevice& device);

}  // namespace heddle
