#include "engine/kept_sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace heddle {

void KeptSequences::keep(std::int64_t id, std::vector<std::int32_t> tokens, PageTable pages) {
  require(std::ssize(tokens) == pages.length(), "sequence {} has {} tokens and keys of {}", id, tokens.size(),
          pages.length());
  if (!tokens.empty()) kept_.push_back({.id = id, .tokens = std::move(tokens), .pages = std::move(pages)});
}

void KeptSequences::remove(std::int64_t id) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.id == id; });
}

std::optional<PageTable> KeptSequences::longest_prefix(std::span<const std::int32_t> tokens, int max_length) {
  auto best = kept_.end();
  int length = 0;
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const auto common = std::ranges::mismatch(kept->tokens, tokens).in1 - kept->tokens.begin();
    const int usable = static_cast<int>(std::min<std::ptrdiff_t>(common, max_length));
    if (usable <= 0 || usable < length) continue;
    best = kept;
    length = usable;
  }
  if (best == kept_.end()) return std::nullopt;
  kept_.splice(kept_.end(), kept_, best);
  PageTable prefix = best->pages.fork();
  prefix.truncate(length);
  return prefix;
}

bool KeptSequences::give_way() {
  if (kept_.empty()) return false;
  kept_.pop_front();
  return true;
}

}  // namespace heddle
