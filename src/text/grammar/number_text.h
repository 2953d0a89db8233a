// Numbers of a range, as they are written in JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/grammar/automaton.h"

namespace heddle::grammar {

// A finite decimal number; `strict`: the number itself is outside the range.
struct NumberBound {
  bool negative = false;
  std::string integer = "0";  // digits without leading zeros
  std::string fraction;       // digits without trailing zeros
  bool strict = false;
};

struct NumberRange {
  std::optional<NumberBound> least;
  std::optional<NumberBound> most;
};

// `number` is a JSON number.
NumberBound bound_of(const nlohmann::ordered_json& number, bool strict);

// Negative if a < b as values, 0 if they are equal; `strict` does not count.
int compare(const NumberBound& a, const NumberBound& b);

bool contains(const NumberRange& range, const nlohmann::ordered_json& number);

// Whole numbers of at most 18 digits, without a fraction or an exponent.
Fragment integers(AutomatonBuilder& builder, const NumberRange& range);

// Without bounds: at most 18 digits before and 17 behind the point, and an exponent that a double can have. With bounds:
// no exponent, and so few digits behind the point that rounding to a double does not cross a bound.
Fragment numbers(AutomatonBuilder& builder, const NumberRange& range);

}  // namespace heddle::grammar
