#include "wafer/cost/model_error.h"

#include <array>
#include <cmath>

#include "wafer/cost/wse2_fit.h"

namespace heddle {
namespace {

// Two-sided 95 %, by degrees of freedom from 1: as many as there are errors, whose mean is not fitted.
constexpr std::array<double, 6> kStudent{12.706, 4.303, 3.182, 2.776, 2.571, 2.447};

}  // namespace

ModelError end_to_end_error(WaferMethod method, int hidden, std::int64_t in, std::int64_t out) {
  using namespace wse2_fit;
  const auto& cells = method == WaferMethod::waferllm ? kEndToEndErrors
                      : method == WaferMethod::t10    ? kT10EndToEndErrors
                                                      : kLadderEndToEndErrors;
  static_assert(kEndToEndErrors.size() == kStudent.size());
  double squares = 0;
  std::size_t others = 0;
  for (const EndToEndError& cell : cells) {
    if (cell.hidden == hidden && cell.in == in && cell.out == out) continue;
    squares += cell.error * cell.error;
    ++others;
  }
  const double rms = std::sqrt(squares / static_cast<double>(others));
  return {.rms = rms, .margin = kStudent[others - 1] * rms};
}

}  // namespace heddle
