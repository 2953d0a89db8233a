// Character classes of the package `tokenizers`: its own tables, independent of ICU's version of Unicode. Made by
// tools/goldens/make_unicode_data.py; unicode_sets.h turns them into sets.
#pragma once

#include <cstdint>
#include <span>

namespace heddle::unicode_data {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// For every step-th character of the range, the lower case is `delta` code points further on.
struct LowercaseRun {
  char32_t first;
  char32_t last;
  std::uint8_t step;
  std::int32_t delta;
};

struct ScriptRange {
  char32_t first;
  char32_t last;
  const char* script;  // in lower case
};

// The order of the numbers in kCategories.
constexpr const char* kCategoryNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                          "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                          "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

// First code point of a run << 5 | number of its general category, in ascending order. Surrogates do not matter.
extern const std::span<const std::uint32_t> kCategories;

extern const std::span<const CodePointRange> kSpace;            // White_Space
extern const std::span<const CodePointRange> kOtherAlphabetic;  // Alphabetic beyond L and Nl
extern const std::span<const CodePointRange> kOtherLowercase;   // Lowercase beyond Ll
extern const std::span<const CodePointRange> kOtherUppercase;   // Uppercase beyond Lu
extern const std::span<const CodePointRange> kOtherNumeric;     // what Digits matches beyond N
extern const std::span<const CodePointRange> kPunctuation;      // what Punctuation splits at
extern const std::span<const CodePointRange> kAccents;          // what StripAccents removes
extern const std::span<const LowercaseRun> kLowercase;          // without U+0130, whose lower case has two characters
extern const std::span<const ScriptRange> kScripts;

}  // namespace heddle::unicode_data
