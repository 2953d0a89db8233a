// A mixture of experts on a wafer (WaferLLM, section 8), with Mixtral's feed-forward: each token goes to the experts
// with the largest router logits; their outputs are summed, weighted by the softmax of those logits.
//
// Prefill: tokens lie along y, features along x. The mesh is split into bands of rows; each band runs some of the
// experts (wafer/cost/wafer_cost.h, expert_bands). A sum along x gives every core its tokens' logits, and each core
// chooses by itself; counts, gathered along y, tell it where its rows lie among those of all. All-to-all along y sends
// each token's row to the bands of its experts, once for all that lie in one direction, in all columns at once. The
// bands run their MeshGEMMs at the same time; a second all-to-all returns the outputs.
// Decode: the features of the one token lie along y in all columns. Every expert is split over all cores like a dense
// layer, so all cores work for the chosen experts and nothing is sent. One sum serves all experts.
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
  std::vector<int> experts;  // [tokens, experts_per_token], the likeliest first; of equal ones the lower index
  WaferCost cost;            // "all-to-all": dispatch and combination; bands work in parallel, so they count once
};

// x [tokens, hidden]. Throws InvalidArgument on sizes that do not fit each other, InputError on meshes with fewer than
// three rows, and as TimedMesh does.
WaferMoeResult wafer_moe_prefill(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                 const WaferProgram& program, ThreadPool& pool);

// x [hidden].
WaferMoeResult wafer_moe_decode(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                const WaferProgram& program, ThreadPool& pool);

}  // namespace heddle
