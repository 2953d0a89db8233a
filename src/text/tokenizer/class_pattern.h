// The regular expressions that tokenizers really have: a choice of sequences of repeated classes of characters, each
// perhaps with a look at the character behind it. GPT-2's, Llama-3's, Qwen2's, DeepSeek's and their variants are of
// this kind, and so is a single character of a set. They are matched by hand, without ICU: at some 100 MB/s, with a
// stack of fixed depth, and for these patterns in time linear in the text.
#pragma once

#include <unicode/uniset.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/pieces.h"

namespace heddle {

// What a pattern of this kind says, in terms of sets.
struct ClassSequence {
  static constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

  struct Item {
    icu::UnicodeSet set;
    std::uint32_t min = 1;
    std::uint32_t max = 1;    // as many as possible
    bool possessive = false;  // never gives back what it took
  };
  enum class Look { none, followed_by, not_followed_by };

  std::vector<Item> items;
  Look look = Look::none;
  icu::UnicodeSet look_set;
};

// The alternatives of a regular expression in Ruby's syntax (as Oniguruma reads it for `tokenizers`), or nothing when
// it is of another kind or may match nothing.
std::optional<std::vector<ClassSequence>> parse_class_pattern(std::string_view regex);

class ClassPattern {
 public:
  // Nothing when there are more than 64 alternatives or ways in which the sets tell characters apart.
  static std::optional<ClassPattern> from(const std::vector<ClassSequence>& alternatives);

  // One character of `set`.
  static ClassPattern any_of(const icu::UnicodeSet& set);

  // Appends the matches in `region` of `text`, as if the region were the whole text, which is valid UTF-8. Of several
  // alternatives the first that matches counts, as with backtracking. Counts its steps down from `steps`; false: they
  // were used up.
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

  // Characters of one kind lie in the same of the pattern's sets.
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
