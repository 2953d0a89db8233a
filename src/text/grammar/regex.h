// Regular expressions, as far as automata can follow them: the common part of ECMAScript's and Python's.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar/character_set.h"

namespace heddle::grammar {

struct RegexNode {
  enum class Kind : std::uint8_t { nothing, characters, sequence, choice, repeat, text_start, text_end };
  Kind kind = Kind::nothing;
  CharacterSet characters;
  std::vector<std::shared_ptr<const RegexNode>> parts;  // of sequence and choice; one of repeat
  int least = 0;
  int most = 0;  // kUnbounded
};

inline constexpr int kMaxRepetitions = 10'000;  // of {m,n}

// Literals, . (no line ends), classes, \d \w \s \D \W \S (ASCII; \s with Unicode's spaces), \t \n \v \f \r \0 \xHH \uHHHH
// \u{H...} \cX, groups (named ones too), |, * + ? {m} {m,} {m,n} (lazy ones match the same texts), and ^ $, which match at
// the ends of the text only. Throws InputError that begins with `where` and names what is wrong or missing, with its
// offset: look-around, backreferences, \b, \p, flags, possessive repetitions.
std::shared_ptr<const RegexNode> parse_regex(std::string_view expression, std::string_view where);

}  // namespace heddle::grammar
