// Memory that the programs need per core, known before anything is loaded: bytes of fp16, tile by tile as prefill.cpp
// and decode_region.cpp allocate them, for a model without biases and head norms.
#pragma once

#include <cstdint>
#include <optional>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/cost/wafer_regions.h"

namespace heddle {

// Where the keys and values of a prompt are until the transition: on the cores that computed them, or on idle cores below
// the mesh, to which each layer hands its own (idle_cores_below, spill_cycles).
enum class PromptKv : std::uint8_t { held, spilled };

// For the region with the most layers, of `regions`.
double wafer_prefill_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens,
                                PromptKv = PromptKv::held);
// The same, plus the output weights or the embedding, or both with one region. `tokens_in_row`: of the fullest row.
double wafer_decode_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens_in_row);

struct WaferFit {
  int regions = 0;                             // that split the layers
  std::int64_t row_tokens = 0;                 // maximum that a row of cores holds beside them
  double prefill_bytes = 0, decode_bytes = 0;  // per core
  std::optional<CoreRectangle> spill = {};     // where region 0's keys and values go; none: they are held
  double spill_bytes = 0;                      // of a core there
};

// Checks `regions` regions; 0 chooses the least number. A prompt of `tokens` must prefill, and `tokens_in_row` must fit
// into each row of cores. Limits: the number of layers, and the regions that fit on the device side by side, floor(W/w)
// floor(H/h), all upright or all turned. The prompt's keys and values are held where that fits, else spilled. With 0
// tokens, or 0 in a row, only the other phase is checked. Throws InputError with the core, the phase, need and budget, and the least
// number of regions or the smallest square mesh that would do.
WaferFit fit_wafer_regions(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                           std::int64_t tokens_in_row, int regions = 0);

}  // namespace heddle
