#include "cli/speed.h"

#include <fmt/format.h>

namespace heddle {

void SpeedMeter::add_step(const StepStatistics& step, std::int64_t num_sampled, Clock::time_point start) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  sampled_ += num_sampled;
  if (step.prefill) {
    prompt_tokens_ += step.num_tokens;
    prompt_seconds_ += seconds;
  } else {
    decoded_ += num_sampled;
    decode_seconds_ += seconds;
    decode_bytes_ += static_cast<double>(step.bytes_read);
  }
}

std::string SpeedMeter::summary() const {
  std::string text = fmt::format("{} tokens", sampled_);
  if (prompt_tokens_ > 0) text = fmt::format("{} prompt tokens in {:.3f} s; ", prompt_tokens_, prompt_seconds_) + text;
  if (decoded_ > 0)
    text +=
        fmt::format(", {:.1f} tokens/s, {:.2f} GB/s", static_cast<double>(decoded_) / decode_seconds_, decode_gbps());
  return text;
}

double SpeedMeter::decode_gbps() const {
  return decode_seconds_ > 0 ? decode_bytes_ / decode_seconds_ / 1e9 : 0;
}

}  // namespace heddle
