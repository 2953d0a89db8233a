#include "text/grammar/text_edges.h"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace heddle::grammar {
namespace {

constexpr char32_t kFirstPlain = 0x20;  // in a JSON string

struct ShortEscape {
  char32_t character;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                                         {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};

// Adds edges from state to state, and shares their ends.
class Speller {
 public:
  Speller(AutomatonBuilder& builder, Spelling spelling) : builder_(builder), spelling_(spelling) {}

  void add(StateId from, StateId to, const CharacterSet& characters) {
    if (spelling_ == Spelling::utf8) {
      add_utf8(from, to, characters);
      return;
    }
    add_utf8(from, to,
             characters & CharacterSet{{kFirstPlain, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLastCharacter}});
    const CharacterSet escaped = characters & CharacterSet{{0, kFirstPlain - 1}, {'"', '"'}, {'/', '/'}, {'\\', '\\'}};
    for (const CharacterRange& range : escaped.ranges())
      for (char32_t character = range.first; character <= range.last; ++character) add_escaped(from, to, character);
  }

 private:
  void add_escaped(StateId from, StateId to, char32_t character) {
    const StateId behind = shared(escapes_, from);
    for (const ShortEscape& escape : kShortEscapes)
      if (escape.character == character) {
        const auto letter = static_cast<std::uint8_t>(escape.letter);
        builder_.bytes(behind, letter, letter, to);
        return;
      }
    // \u00XX, from its end.
    StateId next = to;
    const auto low = static_cast<std::uint8_t>(character % 16);
    const StateId before_low = builder_.state();
    builder_.bytes(before_low, digit(low), digit(low), next);
    if (low >= 10) builder_.bytes(before_low, upper(low), upper(low), next);
    next = before_low;
    const auto high = digit(static_cast<std::uint8_t>(character / 16));
    builder_.bytes(zeros(from, behind), high, high, next);
  }

  static std::uint8_t digit(std::uint8_t value) {
    return static_cast<std::uint8_t>(value < 10 ? '0' + value : 'a' + value - 10);
  }
  static std::uint8_t upper(std::uint8_t value) { return static_cast<std::uint8_t>('A' + value - 10); }

  // Behind the backslash of escapes from a state.
  StateId shared(std::map<StateId, StateId>& known, StateId from) {
    const auto [place, added] = known.try_emplace(from, 0);
    if (added) {
      place->second = builder_.state();
      builder_.bytes(from, '\\', '\\', place->second);
    }
    return place->second;
  }

  // Behind its \u00.
  StateId zeros(StateId from, StateId behind) {
    const auto [place, added] = zeros_.try_emplace(from, 0);
    if (added) {
      StateId at = behind;
      for (const char c : std::string("u00")) {
        const StateId next = builder_.state();
        builder_.bytes(at, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), next);
        at = next;
      }
      place->second = at;
    }
    return place->second;
  }

  void add_utf8(StateId from, StateId to, const CharacterSet& characters) {
    for (const CharacterRange& range : characters.ranges()) {
      constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kLastCharacter};
      char32_t first = range.first;
      for (const char32_t last_of_length : kLastOfLength) {
        if (first > range.last) break;
        if (first > last_of_length) continue;
        const char32_t last = std::min(range.last, last_of_length);
        add_aligned(from, to, first, last);
        first = last + 1;
      }
    }
  }

  // Characters of one length: splits the range until each byte's range is independent of the others'.
  void add_aligned(StateId from, StateId to, char32_t first, char32_t last) {
    for (int shift = 6; shift <= 18; shift += 6) {
      const char32_t mask = (char32_t{1} << shift) - 1;
      if (last <= 0x7F || (first & ~mask) == (last & ~mask)) continue;
      if ((first & mask) != 0) {
        add_aligned(from, to, first, first | mask);
        add_aligned(from, to, (first | mask) + 1, last);
        return;
      }
      if ((last & mask) != mask) {
        add_aligned(from, to, first, (last & ~mask) - 1);
        add_aligned(from, to, last & ~mask, last);
        return;
      }
    }
    std::string low;
    std::string high;
    append_utf8(low, first);
    append_utf8(high, last);
    StateId next = to;
    std::string suffix;  // the ranges behind, and so the way from `next` to `to`
    for (std::size_t i = low.size(); i-- > 1;) {
      suffix.insert(suffix.begin(), {low[i], high[i]});
      const auto [place, added] = suffixes_.try_emplace({to, suffix}, 0);
      if (added) {
        place->second = builder_.state();
        builder_.bytes(place->second, static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]), next);
      }
      next = place->second;
    }
    builder_.bytes(from, static_cast<std::uint8_t>(low[0]), static_cast<std::uint8_t>(high[0]), next);
  }

  AutomatonBuilder& builder_;
  Spelling spelling_;
  std::map<StateId, StateId> escapes_;
  std::map<StateId, StateId> zeros_;
  std::map<std::pair<StateId, std::string>, StateId> suffixes_;
};

}  // namespace

Fragment spell(AutomatonBuilder& builder, const CharacterAutomaton& characters, Spelling spelling) {
  const auto states = characters.states();
  std::vector<StateId> ids;
  for (std::size_t i = 0; i < states.size(); ++i) ids.push_back(builder.state());
  const StateId last = builder.state();
  Speller speller(builder, spelling);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].accepting) builder.empty(ids[i], last);
    std::map<std::int32_t, std::vector<CharacterRange>> by_target;
    for (const CharacterAutomaton::Move& move : states[i].moves)
      by_target[move.target].push_back({move.first, move.last});
    for (auto& [target, ranges] : by_target)
      speller.add(ids[i], ids[static_cast<std::size_t>(target)], CharacterSet(std::move(ranges)));
  }
  return {ids.front(), last};
}

Fragment any_json_character(AutomatonBuilder& builder) {
  const Fragment character = builder.never();
  Speller(builder, Spelling::json).add(character.first, character.last, CharacterSet::all());
  return character;
}

}  // namespace heddle::grammar
