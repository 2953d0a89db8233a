// A mixture of experts on a wafer (WaferLLM, section 8), as Mixtral's feed-forward is: each token goes to the experts
// whose router's logits are the largest, and gets the sum of what they say, weighted by the softmax of those logits.
//
// Prefill. Tokens lie along y, features along x. The mesh is cut into bands of rows, each the region of some experts
// (wafer/cost/wafer_cost.h, expert_bands). Every core learns its tokens' logits by a sum along x and chooses by itself;
// then all-to-all along y: each token's row goes to the bands of its experts, all columns at once, which are MeshGEMMs
// there, all bands at a time; and what they made goes back.
// Decode. One token, whose features lie along y in all columns: every expert's weights are cut over all cores, as a
// dense layer's are, so that all cores work for whichever is chosen, and nothing has to be sent; one sum for all
// experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "base/weight.h"
#include "wafer/programs/decode_region.h"

namespace heddle {

struct WaferExpert {
  Weight gate_up;  // stacked [2 intermediate, hidden]
  Weight down;     // [hidden, intermediate]
};

struct WaferMoe {
  int hidden = 0, intermediate = 0;
  int experts_per_token = 0;
  Weight router;  // [experts, hidden]
  std::vector<WaferExpert> experts;
};

struct WaferMoeResult {
  std::vector<float> y;      // [tokens, hidden]
  std::vector<int> experts;  // [tokens, experts_per_token], the likeliest first; of equal ones the lower
  WaferCost cost;  // with "all-to-all" for dispatch and combination; bands' work once, for they work at a time
};

// x [tokens, hidden]. Throws InvalidArgument on sizes that do not fit each other, InputError on meshes with fewer than
// three rows, and as TimedMesh does.
WaferMoeResult wafer_moe_prefill(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                 const WaferProgram& program, ThreadPool& pool);

// x [hidden].
WaferMoeResult wafer_moe_decode(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                const WaferProgram& program, ThreadPool& pool);

}  // namespace heddle
