// The options that say what an answer must be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace CLI {
class App;
}

namespace heddle {

struct GrammarOptions {
  bool json_object = false;
  std::optional<std::string> json_schema;  // a file
  std::optional<std::string> regex;
  std::vector<std::string> choices;
};

// --json-object, --json-schema, --regex and --choice, of which one may be given. `options` must outlive `command`.
void add_grammar_options(CLI::App& command, GrammarOptions& options);

// Nothing if none was given. Throws InputError when the schema's file cannot be read, or when it or the expression or a
// choice is wrong.
std::optional<grammar::GrammarSource> grammar_of(const GrammarOptions& options);

}  // namespace heddle
