// A step in two parts (TokenWeave, 3.1): its first tokens and the rest, over sequences and within one. A sequence across
// the border is in both: its first new tokens in the first part, the others in the second, which attends to what the
// first writes into the cache in this step.
#pragma once

#include <array>
#include <cstdint>

namespace heddle {

struct StepPlan;

inline constexpr int kMostParts = 2;

// Which of a step's tokens and sequences a part has; without tokens: the step is not cut.
struct PartShape {
  int first_token = 0;
  int num_tokens = 0;
  int first_sequence = 0;
  int num_sequences = 0;
  int max_query_len = 0;  // the largest number of new tokens that a sequence has in this part

  friend bool operator==(const PartShape&, const PartShape&) = default;
};
using PartShapes = std::array<PartShape, kMostParts>;

// As plan.prefix_tokens says. Both without tokens where it is 0.
PartShapes parts_of(const StepPlan& plan);

// What attention reads of a part.
struct StepPart {
  PartShape shape;
  const std::int32_t* query_start = nullptr;  // [num_sequences + 1], from the part's first token
  const std::int32_t* context_len = nullptr;  // [num_sequences], with the tokens of this part and of earlier ones
  const std::int32_t* page_table = nullptr;   // [num_sequences, page_table_stride]
  const std::int32_t* alone_start = nullptr;  // [num_sequences, 2]
};

}  // namespace heddle
