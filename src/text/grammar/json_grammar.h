// A JSON schema as an automaton over the bytes of JSON texts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/grammar/automaton.h"

namespace heddle::grammar {

// Texts of valid values, as README.md says. Throws InputError that begins with `where`.
Automaton compile_schema(const nlohmann::ordered_json& schema, const std::string& where);

}  // namespace heddle::grammar
