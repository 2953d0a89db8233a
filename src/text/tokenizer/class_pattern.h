// The kind of regular expressions that tokenizers use: alternatives of sequences of repeated character classes, each
// with an optional look-ahead of one character. Those of GPT-2, Llama-3, Qwen2, DeepSeek and their variants are of this
// kind, and so is a single character of a set. They are matched without ICU: at some 100 MB/s, with bounded stack
// depth, and for these patterns in linear time.
#pragma once

#include <unicode/uniset.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/pieces.h"

namespace heddle {

// A sequence of such a pattern, in terms of sets.
struct ClassSequence {
  static constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

  struct Item {
    icu::UnicodeSet set;
    std::uint32_t min = 1;
    std::uint32_t max = 1;    // greedy
    bool possessive = false;  // never backtracks
  };
  enum class Look { none, followed_by, not_followed_by };

  std::vector<Item> items;
  Look look = Look::none;
  icu::UnicodeSet look_set;
};

// Parses a regular expression in Ruby's syntax (as Oniguruma reads it for `tokenizers`). Returns its alternatives, or
// nothing when it is of another kind or may match the empty string.
std::optional<std::vector<ClassSequence>> parse_class_pattern(std::string_view regex);

class ClassPattern {
 public:
  // Nothing when there are more than 64 alternatives or more than 64 kinds of characters.
  static std::optional<ClassPattern> from(const std::vector<ClassSequence>& alternatives);

  // Matches one character of `set`.
  static ClassPattern any_of(const icu::UnicodeSet& set);

  // Appends the matches in `region` of `text`, as if the region were the whole text, which must be valid UTF-8. The
  // first alternative that matches wins, as with backtracking. Decrements `steps`; returns false when they are used up.
  bool find(std::string_view text, Span region, std::int64_t& steps, std::vector<Span>& matches) const;

 private:
  struct Item {
    std::uint64_t kinds;  // bit i: characters of kind i
    std::uint32_t min;
    std::uint32_t max;
    bool possessive;
  };
  struct Alternative {
    std::vector<Item> items;
    std::uint64_t look_kinds = 0;
    ClassSequence::Look look = ClassSequence::Look::none;
  };
  class Walk;

  // Characters of the same kind are in the same sets of the pattern.
  struct Kinds {
    static constexpr unsigned kPageBits = 8;
    std::array<std::uint8_t, 128> ascii;
    std::vector<std::uint16_t> page_of;  // by code point >> kPageBits
    std::vector<std::uint8_t> pages;
  };

  ClassPattern() = default;

  Kinds kinds_;
  std::vector<Alternative> alternatives_;
  std::array<std::uint64_t, 64> begin_of_{};  // by kind: the alternatives that may begin with it
};

}  // namespace heddle
