// Ways to account for what a KV cache holds (WaferLLM, table 5), which the paper does not tell apart: what lies on a core
// beside keys and values, and how layers are shared by the regions.
#pragma once

#include <cstdint>
#include <vector>

#include "wafer/cost/wafer_cost.h"

namespace heddle {

struct KvAccounting {
  bool tables = false;        // the embedding and the output matrix lie on the cores
  bool whole_layers = false;  // a region has whole layers; else each an equal share of all
  bool fitted_reserve =
      false;                // beside them, kv_capacity's fitted reserve; else decode's buffers, of which none is fitted
  double weight_bytes = 0;  // of a core of the region that holds the fewest tokens
  double beside_bytes = 0;  // reserve or buffers there
  double token_bytes = 0;   // of a token in its row there
  std::int64_t concat_tokens = 0, shift_tokens = 0;  // 0 where the weights leave no room

  int fitted_constants() const { return fitted_reserve ? 1 : 0; }
};

// All eight, on `regions` regions of the mesh; the one that has the most on the cores and no fitted constant comes first.
// Buffers are the analytical model's: hidden state, queries, keys, values, inner values, and a score a token.
// Precondition: 1 <= regions <= layers. Throws InputError as region_room.
std::vector<KvAccounting> kv_accountings(const PlmrDevice&, const WaferModel&, WaferMesh, int regions);

}  // namespace heddle
