// What the plans' programs take of a core, before anything is loaded: bytes of fp16, tile by tile as prefill.cpp and
// decode_region.cpp allocate them, of a model without biases and norms of heads.
#pragma once

#include <cstdint>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

// A region of `regions`, that with the most layers.
double wafer_prefill_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens);
// Likewise, with the logits' weights or the embedding, or both where one region has them. `tokens_in_row`: of the
// fullest row.
double wafer_decode_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens_in_row);

struct WaferFit {
  int regions = 0;                             // that share the layers
  std::int64_t row_tokens = 0;                 // that a row of cores holds beside them, at most
  double prefill_bytes = 0, decode_bytes = 0;  // of a core
};

// `regions` of them, or for 0 the least number in which a prompt of `tokens` is prefilled and `tokens_in_row` fit into
// each row of cores. Regions are as many as there are layers, and as lie on the device side by side: floor(W/w)
// floor(H/h), upright or all of them turned. Throws InputError where they do not hold it, with the core, the phase,
// what it needs and what there is, and the least number of regions or the smallest square mesh that would do.
WaferFit fit_wafer_regions(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                           std::int64_t tokens_in_row, int regions = 0);

}  // namespace heddle
