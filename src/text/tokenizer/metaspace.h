// Metaspace: spaces are written as one visible character ("\u2581"), and one more may stand before a text.
#pragma once

#include <string>

#include "base/json.h"

namespace heddle {

// Before which pieces of a text the replacement is put, where they do not begin with it.
enum class PrependScheme {
  always,
  first,  // the piece at the very start of the text
  never
};

struct Metaspace {
  std::string replacement;  // one character
  PrependScheme prepend;
  bool split;  // before each replacement

  // Reads the fields of old files as well: add_prefix_space, which must agree, and str_rep, which says nothing new.
  static Metaspace from_json(const JsonField& field);
};

// A string of exactly one character.
std::string one_character(const JsonField& field);

}  // namespace heddle
