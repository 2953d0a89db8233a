// Which strategy of sequence parallelism a layer should take: the one function that every caller asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sequence/timeline.h"
#include "parallel/sequence/volume.h"

namespace heddle {

struct SequenceRequest {
  Placement placement;
  int num_heads = 0;
  int head_dim = 0;
  std::int64_t num_tokens = 0;  // of the whole sequence, text tokens included; divided evenly
  int batch = 1;
  DType dtype = DType::bfloat16;
  std::optional<int> degree;  // P_u of USP, TAS and Torus Attention; gcd_rule() without
  SequenceRates rates;
};

struct SequenceForecast {
  SequenceStrategy strategy = SequenceStrategy::ulysses;
  std::string reason;  // why it does not fit; empty: it does, and the rest is valid
  SequenceMesh mesh;
  double printed_elements = 0;        // a machine's, by equations 4 to 7
  std::int64_t counted_elements = 0;  // a machine's, of our programs
  int barriers_of_all = 0;
  SequenceTimeline timeline;
};

struct SequencePlan {
  std::vector<SequenceForecast> strategies;             // one of each, in the order of kSequenceStrategies
  SequenceStrategy pick = SequenceStrategy::one_sided;  // the least predicted time of those that fit

  const SequenceForecast& of(SequenceStrategy strategy) const { return strategies[static_cast<std::size_t>(strategy)]; }
};

// The most ranks of a request. A ring of R ranks has R programs of R steps.
inline constexpr int kMostPlannedRanks = 128;

// Throws InputError when a size is below 1, when there are more ranks than kMostPlannedRanks or more tokens than a
// layer may have, and when no strategy takes `degree`, with the degrees that would do. Of strategies that predict the
// same time, the one with less traffic between machines is picked, then the simpler one.
SequencePlan plan_sequence_attention(const SequenceRequest& request);

}  // namespace heddle
