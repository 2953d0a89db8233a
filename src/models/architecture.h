// Which architecture a config.json is of.
#pragma once

#include <string>

#include "base/json.h"

namespace heddle {

// architectures[0] of config.json; where there is none, what transformers makes of a model_type that Heddle knows.
// Throws InputError when there is neither.
std::string architecture_of(const JsonField& config);

}  // namespace heddle
