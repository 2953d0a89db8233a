// Which requests `heddle bench serve` sends, and when.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct LoadRequest {
  double arrival_s = 0;  // since the start
  int prompt_tokens = 0;
  int output_tokens = 0;
};

struct ServeLoadOptions {
  std::optional<int> num_requests;  // missing: as many as the trace has, or 100 without one
  // Requests a second on average; infinity: all at once. Gaps between arrivals have a gamma distribution of this shape
  // (burstiness): 1 is a Poisson process, less is burstier, more is more regular.
  double rate = std::numeric_limits<double>::infinity();
  double burstiness = 1;
  int prompt_tokens = 256;
  int output_tokens = 64;
  double range = 0;  // lengths are uniform from (1 - range) to (1 + range) times those
  std::uint64_t seed = 1;
  std::optional<std::string> trace;  // a file whose lines give lengths, and arrivals if they have any
};

struct LoadPlan {
  std::vector<LoadRequest> requests;  // by arrival
  bool traced_arrivals = false;       // arrivals are those of the trace, some of which are not 0
};

// The same options give the same requests. A trace's lines are objects {"prompt_tokens", "output_tokens", "arrival_s"}; its
// arrivals count only without a rate. Where there are fewer lines than num_requests, the trace is repeated: each round
// begins one mean gap after the last arrival of the round before. Where there are more, its first lines are taken, in the
// order of the file. Throws InputError that names file, line and field.
LoadPlan plan_load(const ServeLoadOptions& options);

}  // namespace heddle
