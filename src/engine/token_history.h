// The distinct tokens of a prompt and its text so far, which penalties use, and the biases of a request
// (kernels/sampling/sample.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/sampling/sample.h"

namespace heddle {

// Added to the logit of a token, behind penalties and before the temperature; -100 or less in effect rules it out.
struct LogitBias {
  std::int32_t id = 0;
  double bias = 0;
};

inline constexpr int kMostLogitBiases = 1024;      // of a request
inline constexpr double kLargestLogitBias = 1000;  // to either side

class TokenHistory {
 public:
  // Biases of one id add up.
  explicit TokenHistory(std::span<const std::int32_t> prompt, std::span<const LogitBias> biases = {}) {
    for (const LogitBias& bias : biases) entry(bias.id).bias += static_cast<float>(bias.bias);
    for (const std::int32_t id : prompt) seen(id);
  }

  void add_text(std::int32_t id) { ++seen(id).count; }

  // Replaces the bias of a token.
  void set_bias(std::int32_t id, double bias) { entry(id).bias = static_cast<float>(bias); }

  std::span<const HistoryToken> tokens() const { return tokens_; }

 private:
  HistoryToken& entry(std::int32_t id) {
    const auto [place, added] = places_.try_emplace(id, tokens_.size());
    if (added) tokens_.push_back({.id = id, .count = HistoryToken::kUnseen});
    return tokens_[place->second];
  }

  HistoryToken& seen(std::int32_t id) {
    HistoryToken& token = entry(id);
    if (token.count == HistoryToken::kUnseen) token.count = 0;
    return token;
  }

  std::vector<HistoryToken> tokens_;
  std::unordered_map<std::int32_t, std::size_t> places_;  // of ids in tokens_
};

}  // namespace heddle
