// The distinct tokens of a prompt and its text so far, which penalties use (kernels/sampling/sample.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/sampling/sample.h"

namespace heddle {

class TokenHistory {
 public:
  explicit TokenHistory(std::span<const std::int32_t> prompt) {
    for (const std::int32_t id : prompt) entry(id);
  }

  void add_text(std::int32_t id) { ++entry(id).count; }

  std::span<const HistoryToken> tokens() const { return tokens_; }

 private:
  HistoryToken& entry(std::int32_t id) {
    const auto [place, added] = places_.try_emplace(id, tokens_.size());
    if (added) tokens_.push_back({.id = id});
    return tokens_[place->second];
  }

  std::vector<HistoryToken> tokens_;
  std::unordered_map<std::int32_t, std::size_t> places_;  // of ids in tokens_
};

}  // namespace heddle
