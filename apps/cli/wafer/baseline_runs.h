// T10 and Ladder: what their programs take by the words on their links, beside the model that was fitted to their
// published throughputs, and those.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "wafer/cost/wafer_cost.h"

namespace heddle {

struct BaselineRun {
  int table = 0;
  std::string row;
  int side = 0;
  double published = 0, fitted = 0, run = 0;  // tokens per second
  // Of the run. Hops and words were counted; compute and stages are analytical, and in decode the rest is the analytical
  // model's, with its element-wise work and its fitted residual, as it is in WaferLLM's programs.
  WaferCost layer;
};

inline constexpr Basis kLayerBases[] = {Basis::counted, Basis::analytical, Basis::fitted};
// Of the run's cycles.
double percent_of(const BaselineRun& run, Basis basis);
nlohmann::ordered_json json_of(const BaselineRun& run);
std::string text_of(const std::vector<BaselineRun>& runs);

// All visible cells of tables 3 and 4 of both baselines. Takes a minute.
std::vector<BaselineRun> baseline_runs(const PlmrDevice& device);

}  // namespace heddle
