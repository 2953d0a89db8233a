// Which predictions are of cells that the WaferLLM paper published.
#pragma once

#include <string>

#include "wafer/cost/basis.h"
#include "wafer/cost/wafer_predict.h"

namespace heddle {

// Whether a device's constants are those that were fitted to cells.
bool has_fitted_constants(const PlmrDevice& device);

// What the rate of `prediction` is: with the fitted constants, "fitted" where it is a visible cell of tables 3 or 4, and
// "held out" where it is one of tables 2 to 4 that was kept back; otherwise the bases of its parts. `model` is a name in weights/shapes.h.
Bases basis_of_rate(const PlmrDevice& device, const std::string& model, const WaferWork& work,
                    const WaferPrediction& prediction);

}  // namespace heddle
