// The transition from prefill to decode (WaferLLM, section 4.4): every weight of a layer, and the prompt's keys and
// values, move from the core that has them in prefill to the core that has them in decode.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/cost/wafer_regions.h"
#include "wafer/programs/kv_rows.h"

namespace heddle {

struct Relayout {
  WaferMesh prefill;
  int prefill_regions = 1;
  std::optional<CoreRectangle> spill = {};  // where prefill put keys and values (WaferFit::spill)
  WaferMesh decode;
  int decode_regions = 1;
};

// Indices of one axis of a tensor that move from place `from` along an axis of prefill's mesh to core `to` along an axis
// of decode's.
struct IndexMove {
  int from = 0, to = 0;
  std::vector<int> indices;
};

// How keys, or values, of a layer move: from place (features.from, tokens.from) to core (features.to, tokens.to), (x, y),
// for each pair of the two. Each token and each feature is in one move. `rows`: the prompt's tokens in decode.
struct PromptMoves {
  std::vector<IndexMove> tokens, features;
};
PromptMoves prompt_moves(const WaferModel& model, WaferMesh prefill, WaferMesh decode, const KvRows& rows);

// Cycles of all moves. Their words are counted on every link of the device (mesh/load_mesh.h): all begin at once, along x
// and then along y, and are relayed by the cores on their way. Regions lie as region_cores() says.
double relayout_cycles(const PlmrDevice& device, const WaferModel& model, const Relayout& layout, const KvRows& rows);

}  // namespace heddle
