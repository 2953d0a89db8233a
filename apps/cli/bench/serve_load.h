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
  int num_requests = 100;
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

// The same options give the same requests. A trace's lines are objects {"prompt_tokens", "output_tokens", "arrival_s"}; it
// is repeated if there are fewer than num_requests, and its arrivals count only without a rate. Throws InputError that
// names file, line and field.
std::vector<LoadRequest> plan_load(const ServeLoadOptions& options);

}  // namespace heddle
