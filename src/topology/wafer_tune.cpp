#include "topology/wafer_tune.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

// Of the device's squares that with the fewest cycles; `cycles_on` throws InputError where something does not fit.
template <class CyclesOn>
WaferMesh best_square(const PlmrDevice& device, const CyclesOn& cycles_on) {
  WaferMesh best;
  double least = std::numeric_limits<double>::infinity();
  std::string why;  // of the largest square
  const int most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  for (int side = most; side >= 3; --side) {
    try {
      const double cycles = cycles_on(WaferMesh{side, side});
      if (cycles < least) best = {side, side};
      least = std::min(least, cycles);
    } catch (const InputError& error) {
      if (why.empty()) why = error.what();
    }
  }
  if (best.width == 0) throw_error<InputError>("no square mesh of {} would do; {}", device.name, why);
  return best;
}

}  // namespace

WaferTuning tune_wafer(const PlmrDevice& device, const WaferModel& model, std::int64_t context, std::int64_t output) {
  require(context > 0 && output > 0, "{} tokens of prompt, {} of output", context, output);
  WaferWork work{.context = context, .output = output};
  work.prefill_mesh = best_square(device, [&](WaferMesh mesh) {
    return fitting_cycles(device, model, {.phase = WaferPhase::prefill, .prefill_mesh = mesh, .context = context});
  });
  work.decode_mesh = best_square(device, [&](WaferMesh mesh) {
    return fitting_cycles(device, model,
                          {.phase = WaferPhase::decode, .decode_mesh = mesh, .context = context, .output = output});
  });
  work.phase = WaferPhase::end_to_end;
  return {work.prefill_mesh, work.decode_mesh, predict_wafer(device, model, work)};
}

}  // namespace heddle
