#include "step/part.h"

#include <algorithm>

#include "step/step_plan.h"

namespace heddle {

PartShapes parts_of(const StepPlan& plan) {
  PartShapes parts;
  const int border = plan.prefix_tokens;
  if (border == 0) return parts;
  const auto num_sequences = static_cast<int>(plan.sequences.size());
  for (int i = 0; i < kMostParts; ++i) {
    const int begin = i == 0 ? 0 : border, end = i == 0 ? border : static_cast<int>(plan.tokens.size());
    PartShape& part = parts[static_cast<std::size_t>(i)];
    part = {.first_token = begin, .num_tokens = end - begin, .first_sequence = num_sequences};
    for (int j = 0; j < num_sequences; ++j) {
      const StepSequence& sequence = plan.sequences[static_cast<std::size_t>(j)];
      const int inside =
          std::min(sequence.first_token + sequence.num_tokens, end) - std::max(sequence.first_token, begin);
      if (inside <= 0) continue;
      part.first_sequence = std::min(part.first_sequence, j);
      ++part.num_sequences;
      part.max_query_len = std::max(part.max_query_len, inside);
    }
  }
  return parts;
}

}  // namespace heddle
