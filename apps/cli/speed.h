// How fast a run was: what `generate` says when it is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace heddle {

class SpeedMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // To be called after each step that began at `start`; `num_sampled`: tokens it gave.
  void add_step(const StepStatistics& step, std::int64_t num_sampled, Clock::time_point start);

  // "12 prompt tokens in 0.004 s; 200 tokens, 640.1 tokens/s, 6.1 GB/s". Rates are those of the steps that only decode,
  // and are left out when there was none.
  std::string summary() const;

  // GB/s of the steps that only decode; 0 when there was none.
  double decode_gbps() const;

 private:
  std::int64_t prompt_tokens_ = 0;
  double prompt_seconds_ = 0;
  std::int64_t sampled_ = 0;
  std::int64_t decoded_ = 0;  // of them in steps that only decode
  double decode_seconds_ = 0;
  double decode_bytes_ = 0;
};

}  // namespace heddle
