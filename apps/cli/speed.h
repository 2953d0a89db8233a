// The speed of a run, which `generate`, `chat` and `score` report.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace heddle {

class SpeedMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // Call it after each step; the step began at `start`.
  void add_step(const StepStatistics& step, Clock::time_point start);

  // "prefill 7501 tokens, 433 tok/s; decode 54 tokens, 8.8 tok/s; TTFT 17.3 s". Decode counts all sampled tokens; its
  // rate leaves out the first one of each answer, which prefill gives. A step that does both is shared out by tokens.
  // TTFT: from the first step's beginning to the first sampled token. Without what there was none of.
  std::string summary() const;

  std::int64_t num_prompt_tokens() const { return prefill_.tokens; }
  std::int64_t num_sampled() const { return sampled_; }

  // GB/s of the steps that only decode; 0 if there were none.
  double decode_gbps() const;

 private:
  struct Phase {
    std::int64_t tokens = 0;
    double seconds = 0;
    std::string rate() const;  // ", 433 tok/s"
  };

  Phase prefill_;
  Phase decode_;
  std::int64_t sampled_ = 0;
  std::optional<Clock::time_point> begin_;
  std::optional<double> first_token_seconds_;
  double pure_decode_seconds_ = 0;  // of steps that only decode, and the bytes they read
  double pure_decode_bytes_ = 0;
};

// "433 tok/s", "8.8 tok/s".
std::string rate_text(double tokens_per_second);

}  // namespace heddle
