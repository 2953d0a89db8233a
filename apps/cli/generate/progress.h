// How far a run is, on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/progress.h"
#include "cli/generate/batch.h"
#include "cli/speed.h"
#include "models/model.h"

namespace heddle {

// Until the first token is sampled: prompt tokens. Afterwards, of a single answer its tokens, of several the share of all
// tokens that they may have.
class RunProgress {
 public:
  // `max_tokens`: of a single answer.
  RunProgress(std::int64_t max_tokens, ProgressShown shown) : max_tokens_(max_tokens), shown_(shown) {}

  // Call it before the first step: its time counts, and where it will be long, it is shown that it has begun.
  void begin(const Batch& batch, const ModelShape& shape);
  // Call it after each step.
  void update(const Batch& batch, const SpeedMeter& speed);
  void hide();

 private:
  enum class Phase : std::uint8_t { prefill, decode, answers };
  void enter(Phase phase, std::int64_t total, std::int64_t num_answers = 1);

  std::int64_t max_tokens_;
  ProgressShown shown_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<Phase> phase_;
  std::optional<Progress> bar_;
};

}  // namespace heddle
