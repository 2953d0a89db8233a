// Random bounded schemas, valid values of them, and a validator that shares nothing with the grammar.
#pragma once

#include <nlohmann/json.hpp>
#include <random>

namespace heddle::grammar {

using Random = std::mt19937_64;

nlohmann::ordered_json random_schema(Random& random);

// Satisfies `schema`, which random_schema made.
nlohmann::ordered_json random_value(Random& random, const nlohmann::ordered_json& schema);

bool satisfies(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema);

}  // namespace heddle::grammar
