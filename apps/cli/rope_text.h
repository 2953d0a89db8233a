// Rotary positions as `heddle inspect` shows them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/rope_config.h"

namespace heddle {

// "theta 500000, llama3 scaling by 32 from 8192 positions".
std::string rope_text(const RopeConfig& rope);

// "theta", "type" as config.json names it ("default": no scaling), "factor" and "original_context" (null: none), and what
// else the type has.
nlohmann::ordered_json rope_json(const RopeConfig& rope);

}  // namespace heddle
