// T10 and Ladder: what their programs take on the simulated mesh, beside the model that was fitted to their published
// throughputs, and those.
#pragma once

#include <string>
#include <vector>

#include "wafer/cost/plmr.h"

namespace heddle {

struct BaselineRun {
  int table = 0;
  std::string row;
  int side = 0;
  double published = 0, fitted = 0, run = 0;  // tokens per second
};

// All visible cells of tables 3 and 4 of both baselines. Takes a minute.
std::vector<BaselineRun> baseline_runs(const PlmrDevice& device);

}  // namespace heddle
