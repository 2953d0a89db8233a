// Translates regular expressions: tokenizer.json has Oniguruma's Ruby syntax; ICU reads Perl's.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Escapes that only Ruby has and ICU would misread: \K, \g<name>, \O, \y, \Y, \o{101}, \C-a, \M-a.
struct UnsupportedEscape {
  std::string escape;
};

// Rewrites for ICU what the two read differently:
//   a{1,3}+   Ruby repeats the group greedily, Perl makes it possessive; a{3}? is also an optional group in Ruby
//   {,3}, {   an interval from 0; a brace that begins no interval is literal
//   \h, \H    hexadecimal digits, not horizontal space
//   \p{L}     and the other sets of unicode_sets.h: their characters, whatever ICU's version
//   \w, \W    without the joiners U+200C and U+200D
//   \b, \B    by that \w; ICU's attaches marks to the preceding character
//   [:punct:] symbols as well
//   \p{^L}    \P{L}
//   (?m)      the dot matches newlines, which Perl calls (?s)
//   \v, \Z    only the vertical tab; the end, or before a newline that ends the text
//   \Q, [\R]  and other letters without a meaning in Ruby, or in a class, are literal
// The caller must set flags for the remaining difference: ^ and $ match at every \n, and only at \n. Throws
// UnsupportedEscape. Does not check whether the pattern is well-formed: ICU does.
std::string regex_for_icu(std::string_view pattern);

}  // namespace heddle
