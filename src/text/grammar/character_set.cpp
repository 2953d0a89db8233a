#include "text/grammar/character_set.h"

#include <algorithm>

namespace heddle::grammar {
namespace {

constexpr CharacterRange kSurrogates{0xD800, 0xDFFF};

}  // namespace

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges) {
  std::vector<CharacterRange> parts;
  for (const CharacterRange& range : ranges) {
    if (range.first < kSurrogates.first)
      parts.push_back({range.first, std::min(range.last, char32_t{kSurrogates.first - 1})});
    if (range.last > kSurrogates.last)
      parts.push_back({std::max(range.first, char32_t{kSurrogates.last + 1}), std::min(range.last, kLastCharacter)});
  }
  std::ranges::sort(parts, {}, &CharacterRange::first);
  for (const CharacterRange& part : parts) {
    if (part.first > part.last) continue;
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    else
      ranges_.push_back(part);
  }
}

CharacterSet CharacterSet::all() {
  return {{0, kLastCharacter}};
}

bool CharacterSet::contains(char32_t character) const {
  return std::ranges::any_of(
      ranges_, [&](const CharacterRange& range) { return range.first <= character && character <= range.last; });
}

CharacterSet CharacterSet::operator|(const CharacterSet& other) const {
  std::vector<CharacterRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(both));
}

CharacterSet CharacterSet::operator&(const CharacterSet& other) const {
  return ~(~*this | ~other);
}

CharacterSet CharacterSet::operator~() const {
  std::vector<CharacterRange> gaps;
  char32_t next = 0;
  for (const CharacterRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) gaps.push_back({next, kLastCharacter});
  return CharacterSet(std::move(gaps));
}

}  // namespace heddle::grammar
