#include "parallel/tuned_split.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "machine/tuned_store.h"

namespace heddle {

std::string name_of(const SplitKey& key) {
  return fmt::format("token_weave.{}x{}.{}.{}h.{}e.tp{}.{}", key.layers, key.hidden, key.intermediate, key.heads,
                     key.experts, key.ranks, key.device == DeviceKind::cpu ? "cpu" : "cuda");
}

std::optional<SplitOptions> tuned_split(const TunedStore& store, const SplitKey& key) {
  constexpr double kMostTokens = 1 << 20;
  const std::optional<double> tokens = store.number(name_of(key));
  if (!tokens || !(*tokens >= 0 && *tokens <= kMostTokens)) return std::nullopt;
  if (*tokens == 0) return SplitOptions{};
  return SplitOptions{.kind = SplitKind::smart, .min_tokens = static_cast<int>(*tokens)};
}

void put_tuned_split(TunedStore& store, const SplitKey& key, const SplitOptions& split) {
  store.put(name_of(key), split.kind == SplitKind::none ? 0 : split.min_tokens);
}

SplitOptions choose_split(const std::vector<SplitSample>& samples) {
  constexpr double kFaster = 0.99;
  SplitOptions chosen;
  for (auto sample = samples.rbegin(); sample != samples.rend(); ++sample) {
    if (!(sample->split_seconds <= kFaster * sample->whole_seconds)) break;
    chosen = {.kind = SplitKind::smart, .min_tokens = sample->tokens};
  }
  return chosen;
}

}  // namespace heddle
