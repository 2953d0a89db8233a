// How far a prediction end to end may be off, beyond what its constants may be: by the errors of table 2's cells of the
// WaferLLM paper, none of which was fitted. The cell that is predicted is left out.
#pragma once

#include <cstdint>

#include "wafer/cost/wafer_baselines.h"

namespace heddle {

// Relative. rms: of the errors of the other cells; margin: what a 95 % interval for one more has to either side, by
// Student's t, for so few errors.
struct ModelError {
  double rms = 0, margin = 0;
};

// Of a model's rate with `in` tokens of prompt and `out` new ones. Cells are table 2's three visible ones of each model; a
// cell of this model (by its hidden size) and these lengths does not count.
ModelError end_to_end_error(WaferMethod, int hidden, std::int64_t in, std::int64_t out);

}  // namespace heddle
