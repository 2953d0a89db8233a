// Input: a letter (s: a JSON schema, r: a regular expression, c: choices by line), the source, and after a first zero
// byte a text to match.
#include "text/grammar/grammar.h"

#include <algorithm>
#include <string>

#include "fuzz/target.h"
#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {
namespace {

using grammar::GrammarSource;

GrammarSource source_of(std::string_view text) {
  if (text.starts_with('r')) return {.kind = GrammarSource::Kind::regex, .text = std::string(text.substr(1))};
  if (!text.starts_with('c'))
    return {.kind = GrammarSource::Kind::json_schema, .text = std::string(text.empty() ? text : text.substr(1))};
  GrammarSource source{.kind = GrammarSource::Kind::choice};
  text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    source.choices.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return source;
}

// Some text that the grammar allows: it never runs into a dead end.
void walk(const std::shared_ptr<const grammar::Automaton>& automaton, std::string_view seeds) {
  grammar::Matcher matcher(automaton);
  std::string text;
  for (int steps = 0; steps < 200 && matcher.continues(); ++steps) {
    const auto first =
        static_cast<unsigned char>(seeds.empty() ? 'a' : seeds[static_cast<std::size_t>(steps) % seeds.size()]);
    bool found = false;
    for (unsigned i = 0; i < 256 && !found; ++i) {
      const auto byte = static_cast<char>((first + i) % 256);
      found = matcher.accept({&byte, 1});
      if (found) text += byte;
    }
    expect(found, "a dead end behind {}", text);
  }
  expect(matcher.continues() || matcher.accepting(), "an end that is none behind {}", text);
  if (matcher.accepting()) expect(!find_invalid_utf8(text), "the grammar matches what is not UTF-8: {}", text);
}

}  // namespace

void fuzz_grammar(std::string_view input) {
  const auto [source, text] = split_at_zero(input);
  const std::string_view seeds = text;
  const std::string_view whole = source;
  accepts([&] {
    const auto automaton = grammar::compile_grammar(source_of(whole), "fuzz");
    try {
      grammar::Matcher matcher(automaton);
      for (const char& byte : seeds)
        if (!matcher.accept({&byte, 1})) break;
      walk(automaton, seeds);
    } catch (const Failure& failure) {  // too ambiguous
      check_message(failure.what());
    }
  });
}

}  // namespace heddle::fuzz
