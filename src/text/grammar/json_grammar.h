// A JSON schema as an automaton over the bytes of JSON texts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/grammar/automaton.h"
#include "text/grammar/frame.h"

namespace heddle::grammar {

// Texts of valid values in a frame, as README.md says. Throws InputError that begins with `where`.
Automaton compile_schema(const nlohmann::ordered_json& schema, const Frame& frame, const std::string& where);

}  // namespace heddle::grammar
