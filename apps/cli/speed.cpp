#include "cli/speed.h"

#include <fmt/format.h>

namespace heddle {
namespace {

// Three digits, where the whole part has fewer: 9.71 ms, 350 ms, 17.3 s, 1234 s.
std::string seconds_text(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 100 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string tokens_text(std::int64_t tokens) {
  return fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s");
}

}  // namespace

std::string rate_text(double tokens_per_second) {
  return fmt::format("{:.{}f} tok/s", tokens_per_second, tokens_per_second < 99.95 ? 1 : 0);
}

std::string SpeedMeter::Phase::rate() const {
  return tokens > 0 && seconds > 0 ? ", " + rate_text(static_cast<double>(tokens) / seconds) : std::string();
}

void SpeedMeter::add_step(const StepStatistics& step, Clock::time_point start) {
  const Clock::time_point end = Clock::now();
  const double seconds = std::chrono::duration<double>(end - start).count();
  const int tokens = step.num_prompt_tokens + step.num_decoded;
  const double decode_share = tokens > 0 ? static_cast<double>(step.num_decoded) / tokens : 0;
  prefill_.tokens += step.num_prompt_tokens;
  prefill_.seconds += seconds * (1 - decode_share);
  decode_.tokens += step.num_decoded;
  decode_.seconds += seconds * decode_share;
  sampled_ += step.num_sampled;
  if (!begin_) begin_ = start;
  if (!first_token_seconds_ && step.num_sampled > 0)
    first_token_seconds_ = std::chrono::duration<double>(end - *begin_).count();
  if (step.num_prompt_tokens > 0) return;
  pure_decode_seconds_ += seconds;
  pure_decode_bytes_ += static_cast<double>(step.bytes_read);
}

std::string SpeedMeter::summary() const {
  std::string text = "prefill " + tokens_text(prefill_.tokens) + prefill_.rate();
  if (sampled_ > 0) text += "; decode " + tokens_text(sampled_) + decode_.rate();
  if (first_token_seconds_) text += "; TTFT " + seconds_text(*first_token_seconds_);
  return text;
}

double SpeedMeter::decode_gbps() const {
  return pure_decode_seconds_ > 0 ? pure_decode_bytes_ / pure_decode_seconds_ / 1e9 : 0;
}

}  // namespace heddle
