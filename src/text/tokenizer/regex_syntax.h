// Translates regular expressions: tokenizer.json has Oniguruma's Ruby syntax; ICU reads Perl's.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Escapes that only Ruby has and ICU would misread: \K, \g<name>, \O, \y, \Y, \o{101}, \C-a, \M-a.
struct UnsupportedEscape {
  std::string escape;
};

// Rewrites for ICU what the two read differently. The caller must set flags for the remaining difference: ^ and $ match
// at every \n, and only at \n. Throws UnsupportedEscape. Does not check whether the pattern is well-formed: ICU does.
std::string regex_for_icu(std::string_view pattern);

}  // namespace heddle
