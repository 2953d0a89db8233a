// The speed of a run, which `generate` reports at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace heddle {

class SpeedMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // Call it after each step; the step began at `start`.
  void add_step(const StepStatistics& step, Clock::time_point start);

  // "12 prompt tokens and 200 generated in 0.31 s; 640.1 tokens/s, 6.10 GB/s". The rates cover steps that only decode,
  // and are left out if there were none.
  std::string summary() const;

  // GB/s of the steps that only decode; 0 if there were none.
  double decode_gbps() const;

 private:
  std::int64_t prompt_tokens_ = 0;
  std::int64_t sampled_ = 0;
  double seconds_ = 0;
  std::int64_t decoded_ = 0;  // tokens of steps that only decode, and the time and bytes of these steps
  double decode_seconds_ = 0;
  double decode_bytes_ = 0;
};

}  // namespace heddle
