#include "text/tokenizer/class_pattern.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxBits = 64;
constexpr std::size_t kNoMatch = ~std::size_t{0};

// The distinct sets of a pattern.
class SetList {
 public:
  std::size_t index_of(const icu::UnicodeSet& set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    if (found != sets_.end()) return static_cast<std::size_t>(found - sets_.begin());
    sets_.push_back(set);
    return sets_.size() - 1;
  }
  const std::vector<icu::UnicodeSet>& all() const { return sets_; }

 private:
  std::vector<icu::UnicodeSet> sets_;
};

// A range of code points and the sets that contain it, one bit each.
struct Run {
  UChar32 first;
  UChar32 last;
  std::uint64_t sets;
};

std::vector<Run> runs_of(const std::vector<icu::UnicodeSet>& sets) {
  std::map<UChar32, std::uint64_t> flips;  // code points where membership changes
  flips[0];
  for (std::size_t index = 0; index < sets.size(); ++index) {
    for (std::int32_t range = 0; range < sets[index].getRangeCount(); ++range) {
      flips[sets[index].getRangeStart(range)] ^= std::uint64_t{1} << index;
      flips[sets[index].getRangeEnd(range) + 1] ^= std::uint64_t{1} << index;
    }
  }
  std::vector<Run> runs;
  std::uint64_t members = 0;
  for (auto flip = flips.begin(); flip != flips.end() && flip->first <= 0x10FFFF; ++flip) {
    members ^= flip->second;
    const auto next = std::next(flip);
    runs.push_back({flip->first, next == flips.end() ? 0x10FFFF : next->first - 1, members});
  }
  return runs;
}

}  // namespace

std::optional<ClassPattern> ClassPattern::from(const std::vector<ClassSequence>& alternatives) {
  if (alternatives.size() > kMaxBits) return std::nullopt;
  SetList sets;
  for (const ClassSequence& sequence : alternatives) {
    for (const auto& item : sequence.items) sets.index_of(item.set);
    if (sequence.look != ClassSequence::Look::none) sets.index_of(sequence.look_set);
    if (sets.all().size() > kMaxBits) return std::nullopt;
  }

  ClassPattern pattern;
  std::map<std::uint64_t, std::uint8_t> kind_of;  // key: the sets
  std::vector<std::uint8_t> flat(0x110000);
  for (const Run& run : runs_of(sets.all())) {
    const auto [kind, is_new] = kind_of.try_emplace(run.sets, static_cast<std::uint8_t>(kind_of.size()));
    if (kind_of.size() > kMaxBits) return std::nullopt;
    std::fill(flat.begin() + run.first, flat.begin() + run.last + 1, kind->second);
  }
  std::copy_n(flat.begin(), pattern.kinds_.ascii.size(), pattern.kinds_.ascii.begin());
  constexpr std::size_t kPage = std::size_t{1} << Kinds::kPageBits;
  std::map<std::string_view, std::uint16_t> known_pages;
  for (std::size_t at = 0; at < flat.size(); at += kPage) {
    const std::string_view page(reinterpret_cast<const char*>(flat.data()) + at, kPage);
    const auto [known, is_new] = known_pages.try_emplace(page, static_cast<std::uint16_t>(known_pages.size()));
    if (is_new) pattern.kinds_.pages.insert(pattern.kinds_.pages.end(), page.begin(), page.end());
    pattern.kinds_.page_of.push_back(known->second);
  }

  const auto kinds_in = [&](const icu::UnicodeSet& set) {
    const std::uint64_t bit = std::uint64_t{1} << sets.index_of(set);
    std::uint64_t kinds = 0;
    for (const auto& [members, kind] : kind_of)
      if ((members & bit) != 0) kinds |= std::uint64_t{1} << kind;
    return kinds;
  };
  for (const ClassSequence& sequence : alternatives) {
    Alternative alternative;
    alternative.look = sequence.look;
    if (sequence.look != ClassSequence::Look::none) alternative.look_kinds = kinds_in(sequence.look_set);
    std::uint64_t first_kinds = 0;
    bool may_begin_here = true;
    for (const auto& item : sequence.items) {
      alternative.items.push_back({kinds_in(item.set), item.min, item.max, item.possessive});
      if (may_begin_here) first_kinds |= alternative.items.back().kinds;
      may_begin_here = may_begin_here && item.min == 0;
    }
    for (std::size_t kind = 0; kind < kMaxBits; ++kind)
      if ((first_kinds >> kind & 1) != 0) pattern.begin_of_[kind] |= std::uint64_t{1} << pattern.alternatives_.size();
    pattern.alternatives_.push_back(std::move(alternative));
  }
  return pattern;
}

ClassPattern ClassPattern::any_of(const icu::UnicodeSet& set) {
  ClassSequence sequence;
  sequence.items.push_back({set});
  return *from({sequence});
}

// One search. Positions are byte offsets in `text`.
class ClassPattern::Walk {
 public:
  Walk(const ClassPattern& pattern, std::string_view text, Span region, std::int64_t& steps)
      : pattern_(pattern),
        bytes_(reinterpret_cast<const unsigned char*>(text.data())),
        end_(region.end),
        steps_(steps) {}

  struct Char {
    unsigned kind;
    unsigned length;
  };

  // Precondition: the text is valid UTF-8.
  Char char_at(std::size_t at) const {
    const unsigned char* bytes = bytes_ + at;
    const unsigned lead = bytes[0];
    const Kinds& kinds = pattern_.kinds_;
    if (lead < 0x80) return {kinds.ascii[lead], 1};
    unsigned code_point;
    unsigned length;
    if (lead < 0xE0) {
      code_point = (lead & 0x1F) << 6 | (bytes[1] & 0x3Fu);
      length = 2;
    } else if (lead < 0xF0) {
      code_point = (lead & 0x0F) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
      length = 3;
    } else {
      code_point = (lead & 0x07) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 | (bytes[3] & 0x3Fu);
      length = 4;
    }
    const std::size_t page = kinds.page_of[code_point >> Kinds::kPageBits];
    return {kinds.pages[page << Kinds::kPageBits | (code_point & ((1u << Kinds::kPageBits) - 1))], length};
  }

  // The end of the match of the items from `index` on, beginning at `at`. Recursion is as deep as there are items.
  std::size_t match(const Alternative& alternative, std::size_t index, std::size_t at) {
    if (index == alternative.items.size()) return look(alternative, at) ? at : kNoMatch;
    const Item& item = alternative.items[index];
    std::size_t end = at;
    std::uint32_t count = 0;
    while (count < item.max && end < end_) {
      const Char c = char_at(end);
      if ((item.kinds >> c.kind & 1) == 0) break;
      end += c.length;
      ++count;
    }
    steps_ -= count + 1;
    if (count < item.min) return kNoMatch;
    for (;;) {
      const std::size_t found = match(alternative, index + 1, end);
      if (found != kNoMatch || item.possessive || count == item.min || steps_ < 0) return found;
      --count;
      --end;
      while ((bytes_[end] & 0xC0) == 0x80) --end;
    }
  }

 private:
  bool look(const Alternative& alternative, std::size_t at) const {
    if (alternative.look == ClassSequence::Look::none) return true;
    const bool follows = at < end_ && (alternative.look_kinds >> char_at(at).kind & 1) != 0;
    return follows == (alternative.look == ClassSequence::Look::followed_by);
  }

  const ClassPattern& pattern_;
  const unsigned char* bytes_;
  std::size_t end_;
  std::int64_t& steps_;
};

bool ClassPattern::find(std::string_view text, Span region, std::int64_t& steps, std::vector<Span>& matches) const {
  Walk walk(*this, text, region, steps);
  for (std::size_t at = region.begin; at < region.end;) {
    const Walk::Char first = walk.char_at(at);
    std::size_t end = kNoMatch;
    for (std::uint64_t left = begin_of_[first.kind]; left != 0 && end == kNoMatch; left &= left - 1)
      end = walk.match(alternatives_[static_cast<std::size_t>(__builtin_ctzll(left))], 0, at);
    if (steps < 0) return false;
    if (end == kNoMatch) {
      at += first.length;
      continue;
    }
    matches.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)});
    at = end;
  }
  return true;
}

}  // namespace heddle
