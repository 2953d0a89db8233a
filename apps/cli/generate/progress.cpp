#include "cli/generate/progress.h"

#include <fmt/format.h>

namespace heddle {
namespace {

// Tokens are counted, and shown in answers, so that the share and the time left move from the first token on.
ProgressUnit answers_of_budget(std::int64_t tokens, std::int64_t num_answers) {
  const double size = static_cast<double>(tokens) / static_cast<double>(num_answers);
  return {.name = "answers", .size = size, .digits = 0, .rate = "answers/s"};
}

// Bytes of weights times tokens that two cores compute in half a second.
constexpr double kLong = 1e11;

}  // namespace

void RunProgress::begin(const Batch& batch, const ModelShape& shape) {
  enter(Phase::prefill, batch.num_prompt_tokens());
  if (static_cast<double>(shape.weight_bytes_per_step) * static_cast<double>(batch.num_prompt_tokens()) > kLong)
    bar_->show(0);
}

void RunProgress::update(const Batch& batch, const SpeedMeter& speed) {
  const auto done = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  if (speed.num_sampled() == 0) {
    enter(Phase::prefill, batch.num_prompt_tokens());
    bar_->update(done(speed.num_prompt_tokens()));
  } else if (batch.num_answers() == 1) {
    enter(Phase::decode, max_tokens_);
    bar_->update(done(speed.num_sampled()));
  } else {
    enter(Phase::answers, batch.budget(), batch.num_answers());
    const std::int64_t tokens = speed.num_prompt_tokens() + speed.num_sampled();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    bar_->update(done(batch.spent()),
                 fmt::format("{} tokens, {}", tokens, rate_text(static_cast<double>(tokens) / seconds.count())));
  }
}

void RunProgress::hide() {
  if (bar_) bar_->hide();
}

void RunProgress::enter(Phase phase, std::int64_t total, std::int64_t num_answers) {
  if (phase_ == phase) return;
  phase_ = phase;
  const auto size = static_cast<std::size_t>(total);
  if (phase == Phase::answers)
    bar_.emplace("generate", size, answers_of_budget(total, num_answers), shown_);
  else
    bar_.emplace(phase == Phase::prefill ? "prefill" : "decode", size, kTokens, shown_);
}

}  // namespace heddle
