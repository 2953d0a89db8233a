// Characters as the bytes that are written for them.
#pragma once

#include <cstdint>

#include "text/grammar/automaton.h"
#include "text/grammar/character_automaton.h"

namespace heddle::grammar {

// utf8: each character as itself. json: as inside a JSON string, where " and \ and control characters are escaped (those
// that have a short escape by it, the others as \u00XX), / may be, and all others are themselves.
enum class Spelling : std::uint8_t { utf8, json };

// The texts that `characters` accepts, without quotation marks.
Fragment spell(AutomatonBuilder& builder, const CharacterAutomaton& characters, Spelling spelling);

// One character of a JSON string.
Fragment any_json_character(AutomatonBuilder& builder);

}  // namespace heddle::grammar
