#include "cli/bench/decode_cases.h"

#include <fmt/format.h>

#include "engine/memory_plan.h"

namespace heddle {

std::vector<DecodeSample> decode_cases(const std::vector<int>& batches, const std::vector<int>& contexts) {
  std::vector<DecodeSample> samples;
  for (const int batch : batches)
    for (const int context : contexts) samples.push_back({.tokens = batch, .context = context, .fused = {}});
  return samples;
}

void leave_out_too_large(std::vector<DecodeSample>& samples, std::size_t available,
                         FunctionRef<std::size_t(const std::vector<DecodeSample>&)> bytes_of) {
  std::vector<DecodeSample> kept;
  for (DecodeSample& sample : samples) {
    kept.push_back(sample);
    const std::size_t bytes = bytes_of(kept);
    if (bytes <= available) continue;
    kept.pop_back();
    sample.left_out =
        fmt::format("cache and step take {}, and {} are free", memory_text(bytes), memory_text(available));
  }
}

std::string why_too_long(double seconds, double left) {
  if (left <= 0) return "no time is left (--seconds)";
  if (seconds <= left) return {};
  return fmt::format("takes about {:.0f} s, and {:.0f} s are left (--seconds)", seconds, left);
}

}  // namespace heddle
