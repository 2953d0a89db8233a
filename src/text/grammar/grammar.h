// What an answer must be: any JSON object, JSON of a schema, a text that matches an expression, or one of several texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/frame.h"
#include "text/grammar/state_table.h"

namespace heddle::grammar {

struct GrammarSource {
  enum class Kind : std::uint8_t { json_object, json_schema, regex, choice };
  Kind kind = Kind::json_object;
  std::string text;  // of json_schema: JSON; of regex: the expression, which must match the whole answer
  std::vector<std::string> choices;  // of choice
  Frame frame;                       // what stands around it
  bool operator==(const GrammarSource&) const = default;
};

// "json_schema": the name that options and fields of requests have for it.
std::string_view name_of(GrammarSource::Kind kind);

// Throws InputError that begins with `where` ("json_schema", "--regex") and names the place in the source: what is
// malformed, what is not supported (README.md), what nothing can match, and what passes a limit (limits.h).
std::shared_ptr<const Automaton> compile_grammar(const GrammarSource& source, std::string_view where);

// Walks an automaton byte by byte. Not thread-safe.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Automaton> automaton);

  // False, and nothing changes, when no text that continues so can match.
  bool accept(std::string_view bytes);

  // Whether the text so far matches.
  bool accepting() const { return table_->accepting(state_); }

  // Whether any text may follow.
  bool continues() const { return table_->continues(state_); }

 private:
  std::shared_ptr<StateTable> table_;
  StateTable::Id state_;
};

}  // namespace heddle::grammar
