// For random bounded schemas: what the grammar matches is valid, and what is valid matches.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "matches.h"
#include "random_schema.h"
#include "text/grammar/state_table.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

std::shared_ptr<const Automaton> automaton_of(const Json& schema) {
  return compile_grammar({.kind = GrammarSource::Kind::json_schema, .text = schema.dump()}, "test");
}

RC_GTEST_PROP(JsonSchemaProperty, EveryValidValueMatches, (std::uint64_t seed)) {
  Random random(seed);
  const Json schema = random_schema(random);
  const auto automaton = automaton_of(schema);
  for (int i = 0; i < 10; ++i) {
    const Json value = random_value(random, schema);
    RC_ASSERT(satisfies(value, schema));
    for (const std::string& text : {value.dump(), value.dump(2)}) {
      Matcher matcher(automaton);
      if (!matcher.accept(text) || !matcher.accepting()) RC_FAIL(schema.dump() + " does not match " + text);
    }
  }
}

// The text that a walk of random bytes comes to; at each step any byte that the grammar allows.
std::string random_text_of(StateTable& table, Random& random) {
  std::string text;
  StateTable::Id state = table.start();
  for (;;) {
    std::vector<std::uint8_t> bytes;
    for (int byte = 0; byte < 256; ++byte)
      if (table.next(state, static_cast<std::uint8_t>(byte)) != StateTable::kDead)
        bytes.push_back(static_cast<std::uint8_t>(byte));
    if (table.accepting(state) && (bytes.empty() || random() % 2 == 0)) return text;
    RC_ASSERT(!bytes.empty());           // no dead end
    RC_ASSERT(text.size() < 1'000'000);  // and an end
    text += static_cast<char>(bytes[random() % bytes.size()]);
    state = table.next(state, static_cast<std::uint8_t>(text.back()));
  }
}

RC_GTEST_PROP(JsonSchemaProperty, EveryMatchingTextIsValid, (std::uint64_t seed)) {
  Random random(seed);
  const Json schema = random_schema(random);
  StateTable table(automaton_of(schema));
  for (int i = 0; i < 5; ++i) {
    const std::string text = random_text_of(table, random);
    const Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded() || !satisfies(value, schema)) RC_FAIL(schema.dump() + " matches " + text);
  }
}

// A state and its representative allow the same texts of so many bytes.
RC_GTEST_PROP(StateTableProperty, ARepresentativeAllowsTheSameShortTexts, (std::uint64_t seed)) {
  Random random(seed);
  const Json schema = random_schema(random);
  StateTable table(automaton_of(schema));
  constexpr int kBytes = 3;
  StateTable::Id state = table.start();
  for (int steps = 0; steps < 40 && state != StateTable::kDead; ++steps) {
    StateTable::Id one = state;
    StateTable::Id other = table.representative(state, kBytes);
    for (int i = 0; i <= kBytes; ++i) {
      RC_ASSERT(table.accepting(one) == table.accepting(other));
      if (i == kBytes) break;
      std::vector<std::uint8_t> bytes;
      for (int byte = 0; byte < 256; ++byte) {
        const bool allowed = table.next(one, static_cast<std::uint8_t>(byte)) != StateTable::kDead;
        RC_ASSERT(allowed == (table.next(other, static_cast<std::uint8_t>(byte)) != StateTable::kDead));
        if (allowed) bytes.push_back(static_cast<std::uint8_t>(byte));
      }
      if (bytes.empty()) break;
      const std::uint8_t byte = bytes[random() % bytes.size()];
      one = table.next(one, byte);
      other = table.next(other, byte);
    }
    const std::size_t step = random() % 256;
    StateTable::Id next = StateTable::kDead;
    for (std::size_t i = 0; i < 256 && next == StateTable::kDead; ++i)
      next = table.next(state, static_cast<std::uint8_t>((step + i) % 256));
    state = next;
  }
}

}  // namespace
}  // namespace heddle::grammar
