// Deterministic automata over characters: the languages of patterns, of lengths and of property names, which can be
// intersected and complemented.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/character_set.h"
#include "text/grammar/regex.h"

namespace heddle::grammar {

// Where in a text an expression must match.
enum class Match : std::uint8_t { whole, anywhere };

class CharacterAutomaton {
 public:
  struct Move {
    char32_t first = 0;
    char32_t last = 0;
    std::int32_t target = 0;
  };
  struct State {
    std::vector<Move> moves;  // ascending, disjoint
    bool accepting = false;
  };

  // The texts that match. `builder` keeps the time. Throws InputError when there are too many states.
  static CharacterAutomaton of(const RegexNode& expression, Match match, const AutomatonBuilder& builder);

  // All texts but these.
  static CharacterAutomaton all_but(std::span<const std::string_view> texts);

  // Texts of `least` to `most` (or kUnbounded) characters that this automaton accepts.
  CharacterAutomaton of_length(std::int64_t least, std::int64_t most, const AutomatonBuilder& builder) const;

  CharacterAutomaton operator&(const CharacterAutomaton& other) const;

  bool accepts(std::string_view text) const;

  std::span<const State> states() const { return states_; }  // the first is the start

 private:
  std::vector<State> states_;
};

}  // namespace heddle::grammar
