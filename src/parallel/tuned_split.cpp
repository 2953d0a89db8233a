#include "parallel/tuned_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/tuned_store.h"

namespace heddle {

namespace {

std::string split_name_of(const SplitKey& key) {
  const std::string sms = key.device == DeviceKind::cpu ? "" : fmt::format(".{}sms", key.transfer_sms);
  return "token_weave." + name_of(key) + sms;
}

}  // namespace

std::string shape_name_of(const SplitKey& key) {
  return fmt::format("{}.{}.{}h.{}k.{}d.{}e.{}.tp{}.{}{}", key.hidden, key.intermediate, key.heads, key.kv_heads,
                     key.head_dim, key.experts, key.dtype, key.ranks, key.device == DeviceKind::cpu ? "cpu" : "cuda",
                     key.shared ? ".shared" : "");
}

std::string name_of(const SplitKey& key) {
  return fmt::format("{}x{}", key.layers, shape_name_of(key));
}

std::optional<SplitOptions> tuned_split(const TunedStore& store, const SplitKey& key) {
  constexpr double kMostTokens = 1 << 20;
  const std::optional<double> tokens = store.number(split_name_of(key));
  if (!tokens || !(*tokens >= 0 && *tokens <= kMostTokens)) return std::nullopt;
  if (*tokens == 0) return SplitOptions{};
  return SplitOptions{.kind = SplitKind::smart, .min_tokens = static_cast<int>(*tokens)};
}

void put_tuned_split(TunedStore& store, const SplitKey& key, const SplitOptions& split) {
  store.put(split_name_of(key), split.kind == SplitKind::none ? 0 : split.min_tokens);
}

SplitOptions untuned_split(const SplitKey& key) {
  if (key.device == DeviceKind::cpu || key.experts > 0) return {};
  return {.kind = SplitKind::smart, .min_tokens = kUntunedSplitTokens};
}

PairedRatio paired_ratio(const SplitSample& sample) {
  const std::size_t pairs = sample.split_seconds.size();
  require(pairs > 0 && sample.whole_seconds.size() == pairs, "{} whole steps and {} in two parts",
          sample.whole_seconds.size(), pairs);
  std::vector<double> ratios(pairs);
  for (std::size_t i = 0; i < pairs; ++i) ratios[i] = sample.split_seconds[i] / sample.whole_seconds[i];
  std::ranges::sort(ratios);
  // The true median lies outside of the k-th smallest to the k-th largest with probability 2 P(fewer than k of `pairs`
  // tosses are heads).
  constexpr double kMostOutside = 0.05;
  double exactly = std::pow(0.5, static_cast<double>(pairs)), outside = 2 * exactly;
  std::size_t k = 1;
  while (2 * (k + 1) <= pairs) {
    exactly *= static_cast<double>(pairs - k + 1) / static_cast<double>(k);
    if (outside + 2 * exactly > kMostOutside) break;
    outside += 2 * exactly;
    ++k;
  }
  return {.median = (ratios[(pairs - 1) / 2] + ratios[pairs / 2]) / 2,
          .low = ratios[k - 1],
          .high = ratios[pairs - k],
          .confidence = 1 - outside};
}

std::optional<SplitOptions> choose_split(const std::vector<SplitSample>& samples) {
  constexpr double kFaster = 0.99;
  std::optional<SplitOptions> chosen;
  for (auto sample = samples.rbegin(); sample != samples.rend(); ++sample) {
    if (sample->prefix_tokens == 0 || std::ssize(sample->split_seconds) < kFewestPairs) continue;
    if (!chosen) chosen.emplace();
    if (!(paired_ratio(*sample).high < kFaster)) break;
    chosen = SplitOptions{.kind = SplitKind::smart, .min_tokens = sample->tokens};
  }
  return chosen;
}

}  // namespace heddle
