// Whether a grammar matches a text.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/grammar.h"

namespace heddle::grammar {

inline bool matches(const GrammarSource& source, std::string_view text) {
  Matcher matcher(compile_grammar(source, "test"));
  return matcher.accept(text) && matcher.accepting();
}

inline bool schema_matches(const std::string& schema, std::string_view text) {
  return matches({.kind = GrammarSource::Kind::json_schema, .text = schema}, text);
}

inline bool regex_matches(const std::string& expression, std::string_view text) {
  return matches({.kind = GrammarSource::Kind::regex, .text = expression}, text);
}

}  // namespace heddle::grammar
