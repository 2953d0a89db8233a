// Character sets as in the package `tokenizers`, from unicode_data.h, independent of ICU's version.
#pragma once

#include <unicode/uniset.h>

#include <string>
#include <string_view>

namespace heddle {

// The set of a property \p{name}: general categories, Alphabetic, Lowercase, Uppercase, White_Space, the classes of
// POSIX and the larger scripts; in any case, with or without spaces, hyphens and underscores. Null for another name.
// Frozen, so that look-ups are fast and thread-safe.
const icu::UnicodeSet* find_property(std::string_view name);

// The same for a name that is known to exist.
const icu::UnicodeSet& property(std::string_view name);

// \w within a class. (The property "word" and \w elsewhere also have the superscripts and fractions of Latin-1.)
const icu::UnicodeSet& word_characters();

const icu::UnicodeSet& rust_word_characters();  // with the joiners: for Whitespace, and around added tokens
const icu::UnicodeSet& rust_numeric();          // Digits
const icu::UnicodeSet& rust_punctuation();      // Punctuation
const icu::UnicodeSet& accents();               // StripAccents

// `set` as a regular expression of ICU: `near`, an expression with nearly the same meaning there ("\p{L}"), and the
// differences.
std::string set_for_icu(std::string_view near, const icu::UnicodeSet& set);

// Lower case of one character; U+0130, whose lower case is "i" and U+0307, gives itself.
char32_t lower_case(char32_t code_point);

}  // namespace heddle
