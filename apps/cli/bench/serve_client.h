// The client of `heddle bench serve`: streams many completions at once from one thread, and notes when each piece came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/serve_load.h"
#include "cli/bench/serve_report.h"
#include "cli/interrupt.h"

namespace heddle {

enum class ServeEndpoint : std::uint8_t {
  completions,  // /v1/completions: prompts of random token ids
  chat          // /v1/chat/completions: a message of random words, about one token each
};

struct ServeTarget {
  std::string url;        // "http://127.0.0.1:8000", without the path
  std::string model;      // empty: the first that the server lists
  std::string api_key;    // empty: none
  int first_token = 100;  // prompts of completions are of random ids in [first_token, last_token]
  int last_token = 1000;
  double timeout_s = 600;  // of one request
  ServeEndpoint endpoint = ServeEndpoint::completions;
  bool ignore_eos = true;  // a field beside OpenAI's; without, answers may be shorter than asked for
};

// The id of the first model that GET /v1/models lists. Throws Failure when the server does not answer.
std::string first_model(const ServeTarget& target);

struct ServeRun {
  std::vector<ServedAnswer> answers;  // in order of arrival
  double duration_s = 0;              // from the first request to the last end
};

// Sends each request at its arrival, or when fewer than `most_running` (0: no limit) others run, whichever is later. Tokens
// are greedy. A request that fails becomes an answer with an error. Throws Interrupted.
ServeRun run_load(const ServeTarget& target, const std::vector<LoadRequest>& load, int most_running, std::uint64_t seed,
                  const InterruptGuard& guard);

}  // namespace heddle
