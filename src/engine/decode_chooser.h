// Rank 0's choice of the attention of decode steps. What a model or its GPU does not take is refused when this is made, not
// when a kernel is launched.
#pragma once

#include <string>
#include <vector>

#include "engine/rank_models.h"
#include "engine/step_memory.h"
#include "parallel/decode_choice.h"
#include "step/step_plan.h"

namespace heddle {

class DecodeChooser {
 public:
  // Asks rank 0's model about each line of the table, for as many tokens as a step may have. Of the limits it reads those of
  // steps, the page size and the SMs.
  DecodeChooser(const DecodeTable& table, const RankModels& ranks, const ExecutorLimits& limits);

  // Separate operators for all but decode steps in one part.
  DecodeChoice choose(const StepPlan& plan) const;

  // For people, a line for each kind of step: what is chosen, and why nothing else.
  std::vector<std::string> lines() const;

 private:
  struct Line {
    int up_to_context;
    DecodeChoice choice;
    std::string why;  // why_chosen()
    friend bool operator==(const Line&, const Line&) = default;
  };
  struct OfTokens {
    std::vector<Line> lines;  // the first that covers a step decides
    std::string refused;      // why the first refused line was; empty: none was
  };

  std::vector<OfTokens> of_tokens_;  // of 1 token, 2, ...; more have separate operators
  DeviceKind device_ = DeviceKind::cpu;
  int most_texts_ = 0;  // of a step
};

}  // namespace heddle
