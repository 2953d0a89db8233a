// The architecture that a config.json names.
#pragma once

#include <string>

#include "base/json.h"

namespace heddle {

// architectures[0] of config.json; without it, the architecture that transformers derives from a model_type that Heddle
// knows. Throws InputError when there is neither.
std::string architecture_of(const JsonField& config);

}  // namespace heddle
