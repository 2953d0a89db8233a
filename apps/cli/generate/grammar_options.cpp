#include "cli/generate/grammar_options.h"

#include <CLI/CLI.hpp>

#include "cli/input.h"
#include "text/grammar/limits.h"

namespace heddle {

void add_grammar_options(CLI::App& command, GrammarOptions& options) {
  CLI::Option* all[] = {
      command.add_flag("--json-object", options.json_object, "The answer is a JSON object"),
      command.add_option("--json-schema", options.json_schema, "The answer is JSON of the schema in this file")
          ->type_name("FILE"),
      command.add_option("--regex", options.regex, "The answer matches this regular expression, as a whole")
          ->type_name("REGEX"),
      command.add_option("--choice", options.choices, "The answer is this text, or another one: may be given again")
          ->type_name("TEXT")
          ->allow_extra_args(false)};
  for (CLI::Option* one : all)
    for (CLI::Option* other : all)
      if (one != other) one->excludes(other);
}

std::optional<grammar::GrammarSource> grammar_of(const GrammarOptions& options) {
  using Kind = grammar::GrammarSource::Kind;
  std::optional<grammar::GrammarSource> source;
  std::string where;
  if (options.json_object) {
    source = {.kind = Kind::json_object};
  } else if (options.json_schema) {
    const InputText text = read_input(*options.json_schema, grammar::kMaxSourceBytes);
    source = {.kind = Kind::json_schema, .text = text.text};
    where = text.where;
  } else if (options.regex) {
    source = {.kind = Kind::regex, .text = *options.regex};
    where = "--regex";
  } else if (!options.choices.empty()) {
    source = {.kind = Kind::choice, .choices = options.choices};
    where = "--choice";
  }
  if (source) compile_grammar(*source, where);  // before a model is loaded
  return source;
}

}  // namespace heddle
