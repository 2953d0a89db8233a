// Sets of characters as the package `tokenizers` has them, from unicode_data.h and with any version of ICU.
#pragma once

#include <unicode/uniset.h>

#include <string>
#include <string_view>

namespace heddle {

// Of a property as \p{name} has it: general categories, Alphabetic, Lowercase, Uppercase, White_Space, the classes of
// POSIX and the larger scripts; written in any case, with or without spaces, hyphens and underscores. Null for another
// name. Frozen, so that looking up is fast and any thread may.
const icu::UnicodeSet* find_property(std::string_view name);

// As find_property, of a name that is known to be one.
const icu::UnicodeSet& property(std::string_view name);

// \w within a class (the property "word" has the superscripts and fractions of Latin-1 as well, as \w has elsewhere).
const icu::UnicodeSet& word_characters();

const icu::UnicodeSet& rust_word_characters();  // with the joiners: Whitespace, and around added tokens
const icu::UnicodeSet& rust_numeric();          // Digits
const icu::UnicodeSet& rust_punctuation();      // Punctuation
const icu::UnicodeSet& accents();               // StripAccents

// `set` as a regular expression of ICU: `near`, which is one that means nearly the same there ("\p{L}"), and what
// differs.
std::string set_for_icu(std::string_view near, const icu::UnicodeSet& set);

// Of one character; U+0130, whose lower case is "i" and U+0307, gives itself.
char32_t lower_case(char32_t code_point);

}  // namespace heddle
