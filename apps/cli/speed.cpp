#include "cli/speed.h"

#include <fmt/format.h>

namespace heddle {

void SpeedMeter::add_step(const StepStatistics& step, Clock::time_point start) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  prompt_tokens_ += step.num_prompt_tokens;
  sampled_ += step.num_sampled;
  seconds_ += seconds;
  if (step.num_prompt_tokens > 0) return;
  decoded_ += step.num_sampled;
  decode_seconds_ += seconds;
  decode_bytes_ += static_cast<double>(step.bytes_read);
}

std::string SpeedMeter::summary() const {
  std::string text = fmt::format("{} prompt tokens and {} generated in {:.2f} s", prompt_tokens_, sampled_, seconds_);
  if (decoded_ > 0)
    text +=
        fmt::format("; {:.1f} tokens/s, {:.2f} GB/s", static_cast<double>(decoded_) / decode_seconds_, decode_gbps());
  return text;
}

double SpeedMeter::decode_gbps() const {
  return decode_seconds_ > 0 ? decode_bytes_ / decode_seconds_ / 1e9 : 0;
}

}  // namespace heddle
