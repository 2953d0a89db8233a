// Loads the chat template of what a user calls `model` (weights/model_source.h).
#pragma once

#include <string>

#include "text/chat_template/model_chat_template.h"

namespace heddle {

// `file`: a template that replaces the model's own. Throws InputError as ModelChatTemplate::load and
// parse_synthetic_name do.
ModelChatTemplate load_model_chat_template(const std::string& model, const ModelChatTemplate::Override& file = {});

}  // namespace heddle
