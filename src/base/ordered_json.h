// JSON whose objects keep the order of their members, for texts where that order is seen again: conversations that a
// chat template prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace heddle {

// As parse_json, with its limits and errors. Lookup by key is linear in an ordered object.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, int max_depth = 64);

}  // namespace heddle
