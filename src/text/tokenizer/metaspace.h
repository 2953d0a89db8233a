// Metaspace: writes spaces as one visible character ("\u2581"), and may prepend one to a text.
#pragma once

#include <string>

#include "base/json.h"

namespace heddle {

// Which pieces of a text the replacement is prepended to, if they do not begin with it.
enum class PrependScheme {
  always,
  first,  // the piece at the very start of the text
  never
};

struct Metaspace {
  std::string replacement;  // one character
  PrependScheme prepend;
  bool split;  // before each replacement

  // Also reads the fields of old files: add_prefix_space, which must agree, and str_rep, which is redundant.
  static Metaspace from_json(const JsonField& field);
};

// Reads a string of exactly one character.
std::string one_character(const JsonField& field);

}  // namespace heddle
