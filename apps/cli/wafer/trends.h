// What the WaferLLM paper says in words about figures 9 and 10 and its tables, beside the analytical model's results.
#pragma once

#include <string>
#include <vector>

#include "wafer/cost/basis.h"
#include "wafer/cost/plmr.h"

namespace heddle {

struct WaferTrend {
  std::string statement, published, predicted;
  bool holds = false;
  // Fitted where constants were fitted to what the sentence is about, held out where they were fitted to other cells and
  // these were kept back; an average over several kinds has them all.
  Bases basis = Basis::analytical;
};

// Statements about Cannon and SUMMA name the synchronisation they are computed for: the paper does not state that of
// its programs, and most of its statements hold with barriers only.
std::vector<WaferTrend> wafer_trends(const PlmrDevice& device);

}  // namespace heddle
