// tokenizer.json writes regular expressions for Oniguruma in Ruby's syntax; ICU reads Perl's.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// What only Ruby has, and ICU would take for something else: \K, \g<name>, \O, \y, \Y, \o{101}, \C-a, \M-a.
struct UnsupportedEscape {
  std::string escape;
};

// The pattern with what the two read differently rewritten for ICU:
//   a{1,3}+   Ruby repeats the group greedily, Perl makes it possessive; a{3}? is likewise an optional group in Ruby
//   {,3}, {   an interval from 0; a brace that begins no interval is itself
//   \h, \H    hexadecimal digits, not horizontal space
//   \p{L}     and the other sets of unicode_sets.h: the characters that these have, whatever ICU knows
//   \w, \W    without the joiners U+200C and U+200D
//   \b, \B    by that \w; ICU's counts marks to what they stand behind
//   [:punct:] symbols as well
//   \p{^L}    \P{L}
//   (?m)      the dot matches newlines, which Perl calls (?s)
//   \v, \Z    the vertical tab alone; the end, or before a newline that ends the text
//   \Q, [\R]  and other letters that mean nothing in Ruby, or nothing in a class, are themselves
// The remaining difference is in flags, for the caller to set: ^ and $ match at every \n, and only at \n.
// Throws UnsupportedEscape. Does not judge whether the pattern is well-formed: that is ICU's task.
std::string regex_for_icu(std::string_view pattern);

}  // namespace heddle
