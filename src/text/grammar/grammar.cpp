#include "text/grammar/grammar.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/grammar/character_automaton.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/limits.h"
#include "text/grammar/text_edges.h"
#include "text/tokenizer/utf8.h"

namespace heddle::grammar {
namespace {

Automaton compile_regex(const std::string& expression, const Frame& frame, std::string_view where) {
  AutomatonBuilder builder;
  const auto parsed = parse_regex(expression, where);
  const CharacterAutomaton characters = CharacterAutomaton::of(*parsed, Match::whole, builder);
  const RuleId form = builder.rule(spell(builder, characters, Spelling::utf8));
  return std::move(builder).finish(framed(builder, form, frame));
}

Automaton compile_choice(const std::vector<std::string>& choices, const Frame& frame, std::string_view where) {
  if (choices.empty()) throw_error<InputError>("{}: there is nothing to choose from; give at least one text", where);
  AutomatonBuilder builder;
  std::vector<std::string_view> views;
  for (const std::string& choice : choices) {
    if (choice.empty()) throw_error<InputError>("{}: a choice is empty", where);
    if (find_invalid_utf8(choice)) throw_error<InputError>("{}: a choice is not valid UTF-8", where);
    views.emplace_back(choice);
  }
  const RuleId form = builder.rule(builder.any_literal(views));
  return std::move(builder).finish(framed(builder, form, frame));
}

Automaton compile(const GrammarSource& source, std::string_view where) {
  switch (source.kind) {
    case GrammarSource::Kind::json_object:
      return compile_schema({{"type", "object"}}, source.frame, std::string(where));
    case GrammarSource::Kind::json_schema:
      return compile_schema(parse_ordered_json(source.text, where, kMaxSchemaDepth), source.frame, std::string(where));
    case GrammarSource::Kind::regex:
      return compile_regex(source.text, source.frame, where);
    case GrammarSource::Kind::choice:
      return compile_choice(source.choices, source.frame, where);
  }
  throw InvalidArgument("grammar: no such kind of source");
}

}  // namespace

std::string_view name_of(GrammarSource::Kind kind) {
  switch (kind) {
    case GrammarSource::Kind::json_object:
      return "json_object";
    case GrammarSource::Kind::json_schema:
      return "json_schema";
    case GrammarSource::Kind::regex:
      return "regex";
    case GrammarSource::Kind::choice:
      return "choice";
  }
  throw InvalidArgument("grammar: no such kind of source");
}

std::shared_ptr<const Automaton> compile_grammar(const GrammarSource& source, std::string_view where) {
  std::size_t size = source.text.size();
  for (const std::string& choice : source.choices) size += choice.size();
  if (size > kMaxSourceBytes) throw_error<InputError>("{}: has {} bytes, more than {}", where, size, kMaxSourceBytes);
  try {
    return std::make_shared<const Automaton>(compile(source, where));
  } catch (const InputError& error) {
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw_error<InputError>("{}: {}", where, error.what());
  }
}

Matcher::Matcher(std::shared_ptr<const Automaton> automaton)
    : table_(std::make_shared<StateTable>(std::move(automaton))), state_(table_->start()) {}

bool Matcher::accept(std::string_view bytes) {
  StateTable::Id state = state_;
  for (const char byte : bytes) {
    state = table_->next(state, static_cast<std::uint8_t>(byte));
    if (state == StateTable::kDead) return false;
  }
  state_ = state;
  if (table_->full()) {
    const auto fresh = std::make_shared<StateTable>(table_->automaton());
    state_ = fresh->import(*table_, state_);
    table_ = fresh;
  }
  return true;
}

}  // namespace heddle::grammar
