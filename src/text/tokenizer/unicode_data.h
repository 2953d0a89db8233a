// Which characters the package `tokenizers` takes for what: its own tables, whatever version of Unicode ICU knows. Made
// by tools/goldens/make_unicode_data.py; unicode_sets.h makes sets of them.
#pragma once

#include <cstdint>
#include <span>

namespace heddle::unicode_data {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// Every step-th character of the range has its lower case `delta` further on.
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

// First code point of a run << 5 | number of its general category, in ascending order. The surrogates are of no
// account.
extern const std::span<const std::uint32_t> kCategories;

extern const std::span<const CodePointRange> kSpace;            // White_Space
extern const std::span<const CodePointRange> kOtherAlphabetic;  // Alphabetic beyond L and Nl
extern const std::span<const CodePointRange> kOtherLowercase;   // Lowercase beyond Ll
extern const std::span<const CodePointRange> kOtherUppercase;   // Uppercase beyond Lu
extern const std::span<const CodePointRange> kOtherNumeric;     // what Digits takes beyond N
extern const std::span<const CodePointRange> kPunctuation;      // what Punctuation cuts at
extern const std::span<const CodePointRange> kAccents;          // what StripAccents removes
extern const std::span<const LowercaseRun> kLowercase;          // but for U+0130, whose lower case is two characters
extern const std::span<const ScriptRange> kScripts;

}  // namespace heddle::unicode_data
