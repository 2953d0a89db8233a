// Runs the baselines (baseline_programs.h) on simulated cores: word by word on meshes to 32 x 32, by the busiest link of
// each transfer on larger ones. Nothing here was fitted to a baseline's published figures, unlike the analytical model of
// wafer/cost/wafer_baselines.h: the two differ, and docs/notes/wafer.md says by how much.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wafer/cost/wafer_baselines.h"
#include "wafer/cost/wafer_predict.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {

// Above kEventSide cores a side, links are counted; of a loop whose steps differ (Ladder's), kCountedSteps evenly spaced
// ones.
inline constexpr int kEventSide = 32;
inline constexpr int kCountedSteps = 24;
// Transfers that are counted over those that were played: the least and the most of the tests' cases, to kEventSide cores a
// side; and on 16 cores and more a side, where what they take at least is more than 0.9 of it.
inline constexpr double kLeastOverPlayed = 0.978, kMostOverPlayed = 1.713, kMostOverPlayedFrom16 = 1.322;

// How many of a GEMM's steps are counted for all, where they are not played: T10's are alike.
struct CountedSteps {
  int counted = 0, all = 0;
};
std::optional<CountedSteps> counted_gemm_steps(WaferMesh, WaferMethod);

// breakdown: "compute" (analytical), then "exchange" (t10) or "remote reads and writes" (ladder): their hops and words are
// simulated, or counted (then `at_least` is set), and what stages add is analytical. Throw as simulate_gemm does, and InvalidArgument for `waferllm`.
WaferCost simulate_baseline_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod);
WaferCost simulate_baseline_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// As the two above, but by links on a mesh of any size.
WaferCost count_baseline_gemm(const PlmrDevice&, const GemmSize&, WaferMesh, WaferMethod,
                              int counted_steps = kCountedSteps);
WaferCost count_baseline_gemv(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, WaferMethod);

// A layer over `tokens` tokens (prefill), or for the token after them (decode), by links, for a model without experts on a
// square mesh. Words and hops of transfers are counted; compute and stages are analytical. Of decode, GEMV, element-wise
// work and the fitted residual are the analytical model's, which WaferLLM's programs share, and have its bases.
WaferCost count_baseline_layer(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens, WaferPhase,
                               WaferMethod);

// For the baselines' GEMMs, counted by running them: paths at the busiest core, of both axes, and hops and stages of the
// longest chain of messages in a step. L and M: hops, and memory, are those of a line of half the length.
std::vector<ComplianceRow> baseline_compliance(const PlmrDevice&, int line);

}  // namespace heddle::mesh
