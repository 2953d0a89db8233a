// What the server counts, as Prometheus' text and as the JSON of /live.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "server/engine_loop.h"
#include "server/histogram.h"

namespace heddle::server {

struct Metrics {
  Histogram ttft{kTimeBounds};                   // from the request's arrival to its first token
  Histogram itl{kTimeBounds};                    // between two tokens of one answer
  Histogram tpot{kTimeBounds};                   // of an answer: its time after the first token, by token
  Histogram e2e{kTimeBounds};                    // from arrival to the last token
  Histogram queue{kTimeBounds};                  // from arrival to the first step
  Histogram prefill{kTimeBounds};                // from there to the first token
  Histogram decode{kTimeBounds};                 // from there to the last
  Histogram inference{kTimeBounds};              // from the first step to the last token
  Histogram prompt_tokens{kTokenBounds};         // of an answer
  Histogram answer_tokens{kTokenBounds};         // of an answer
  Histogram most_answer_tokens{kTokenBounds};    // of a request's answers, the longest
  Histogram max_tokens{kTokenBounds};            // of requests that say it
  Histogram num_answers{kSampleBounds};          // n
  std::map<std::string, std::int64_t> finished;  // answers, by finish reason
  std::int64_t num_prompt_tokens = 0;            // of accepted requests
  std::int64_t num_generated = 0;                // tokens that clients were sent
  std::int64_t num_rejected = 0;                 // requests answered by 429
  std::int64_t num_cancelled = 0;                // answers whose client has gone
};

// Prometheus' text format 0.0.4; names are vLLM's with the prefix "heddle:".
std::string prometheus_text(const Metrics& metrics, const LoopSnapshot& snapshot, const std::string& model);

// The figures of the last second, from snapshots.
class RecentRates {
 public:
  struct Rates {
    double output_tokens_per_s = 0;
    double prompt_tokens_per_s = 0;
    double steps_per_s = 0;
    double gbps = 0;                // bytes of weights, keys and values, by the time of steps alone
    std::vector<double> rank_gbps;  // likewise, what each rank has read
  };
  Rates update(const LoopSnapshot& snapshot, Clock::time_point now);

 private:
  struct Point {
    Clock::time_point time;
    std::int64_t sampled, prompt, steps;
    double bytes, seconds;
    std::vector<double> rank_bytes;
  };
  std::deque<Point> points_;
};

struct LiveInput {
  const Metrics& metrics;
  const LoopSnapshot& snapshot;
  RecentRates::Rates rates;
  std::string model;
  double uptime_seconds = 0;
  double memory_gbps = 0;  // of all devices together; 0: unknown
  int max_sequences = 0;
  int max_queue = 0;
  int num_outstanding = 0;  // answers that were accepted and have not ended
  std::map<Ticket, std::string> request_ids;
};

// One line of JSON; docs/serve.md has the format.
std::string live_json(const LiveInput& input);

}  // namespace heddle::server
