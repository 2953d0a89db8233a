// The tokenizer of what a user calls `model` (weights/model_source.h).
#pragma once

#include <string>

#include "engine/tokenizer/tokenizer.h"

namespace heddle {

// Throws InputError as Tokenizer::load and parse_synthetic_name do.
Tokenizer load_model_tokenizer(const std::string& model);

}  // namespace heddle
