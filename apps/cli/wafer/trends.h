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
  // Of the prediction. Fitted where constants were fitted to what the sentence is about; held out where the cells were kept
  // back: what the text says of them is known, and only the averages over four models were fitted to it. An average over
  // several kinds has them all.
  Bases basis = Basis::analytical;
};

// Statements about Cannon and SUMMA name the synchronisation they are computed for: the paper does not state that of
// its programs, and most of its statements hold with barriers only.
std::vector<WaferTrend> wafer_trends(const PlmrDevice& device);

}  // namespace heddle
