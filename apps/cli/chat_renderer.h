// A conversation as its model was trained to read it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/chat_conversation.h"
#include "engine/tokenizer/tokenizer.h"

namespace heddle {

struct ChatTemplateOptions {
  std::string model;                     // whose template it is
  std::optional<std::string> file;       // instead of the model's own template
  std::vector<std::string> assignments;  // NAME=JSON: further variables for the template
};

// The text that the model is to go on from. Throws InputError, with the template's own message where it refuses the
// conversation.
using ChatRenderer = std::function<std::string(const Conversation& conversation)>;

// Throws InputError when there is no template, when it is malformed, or when a variable is.
ChatRenderer make_chat_renderer(const Tokenizer& tokenizer, const ChatTemplateOptions& options);

}  // namespace heddle
