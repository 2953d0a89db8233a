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
  int head_dim = 0;             // 1 to 256; GPUs have kernels for 32, 64 and 128
  std::int64_t num_tokens = 0;  // of the whole sequence, text tokens included; divided evenly
  int batch = 1;
  DType dtype = DType::bfloat16;
  std::optional<int> degree;  // P_u of USP, TAS and Torus Attention
  // 2: CFG parallelism (divide_batch). Halves that share machines share the links out of them.
  int halves = 1;
  SequenceRates rates;
};

// One half's layer, where there are two. Elements are of both halves where they share machines.
struct SequenceForecast {
  SequenceStrategy strategy = SequenceStrategy::ulysses;
  std::string reason;  // why it does not fit; empty: it does, and the rest is valid
  SequenceMesh mesh;
  double printed_elements = 0;        // a machine's, by equations 4 to 7
  std::int64_t counted_elements = 0;  // a machine's, of our programs
  std::string difference;             // why_counts_differ(), of one half
  int barriers_of_all = 0;
  SequenceTimeline timeline;
};

struct SequencePlan {
  // One of each, in the order of kSequenceStrategies: with the degree of the request, or of gcd_rule() without; and with
  // the degree that predicts the least time, where the request has none.
  std::vector<SequenceForecast> strategies, fastest;
  SequenceStrategy pick = SequenceStrategy::one_sided;  // the least predicted time of `fastest`

  const SequenceForecast& of(SequenceStrategy strategy) const { return strategies[static_cast<std::size_t>(strategy)]; }
  const SequenceForecast& fastest_of(SequenceStrategy strategy) const {
    return fastest[static_cast<std::size_t>(strategy)];
  }
  const SequenceForecast& picked() const { return fastest_of(pick); }
};

// The most ranks of a request. A ring of R ranks has R programs of R steps.
inline constexpr int kMostPlannedRanks = 128;

// Throws InputError when a size is out of its range, when there are more ranks than kMostPlannedRanks or more tokens than
// a layer may have, when two halves cannot be made, and when no strategy takes `degree`, with the degrees that would do.
// Of degrees and strategies that predict the same time, the one with less traffic between machines is picked, then the
// one of gcd_rule() and the simpler strategy. So the pick is never predicted to be slower than USP.
SequencePlan plan_sequence_attention(const SequenceRequest& request);

}  // namespace heddle
