#include "text/tokenizer/token_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle {

std::int32_t max_token_id(std::size_t num_tokens) {
  constexpr std::size_t kGap = 65536;
  return static_cast<std::int32_t>(
      std::min(static_cast<std::size_t>(kMaxTokenId), 2 * std::min<std::size_t>(num_tokens, kMaxTokenId) + kGap - 1));
}

std::string far_token_id(std::int32_t id, std::size_t num_tokens) {
  return fmt::format("the id {} is far above the number of tokens, {}: ids must be at most {} (max_token_id)", id,
                     num_tokens, max_token_id(num_tokens));
}

TokenTable::TokenTable(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  for (std::size_t index = 0; index < entries.size(); ++index) {
    if (index + 1 < entries.size() && entries[index + 1].id == entries[index].id) continue;
    const Entry& entry = entries[index];
    begin_.resize(static_cast<std::size_t>(entry.id) + 1, static_cast<std::uint32_t>(texts_.size()));
    texts_ += entry.text;
    begin_.push_back(static_cast<std::uint32_t>(texts_.size()));
  }
}

std::string_view TokenTable::operator[](std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return std::string_view(texts_).substr(begin_[at], begin_[at + 1] - begin_[at]);
}

}  // namespace heddle
