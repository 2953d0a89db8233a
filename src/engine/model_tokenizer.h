// Loads the tokenizer of what a user calls `model` (weights/model_source.h).
#pragma once

#include <optional>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace heddle {

// Throws InputError as model_folder, Tokenizer::load and parse_synthetic_name do.
Tokenizer load_model_tokenizer(const std::string& model);

// The same; nothing if the model is a folder without tokenizer.json.
std::optional<Tokenizer> find_model_tokenizer(const std::string& model);

}  // namespace heddle
