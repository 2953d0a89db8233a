// The options that choose a chat template and set its variables, and reading conversations.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template/model_chat_template.h"

namespace CLI {
class App;
}

namespace heddle {

struct TemplateOptions {
  std::optional<std::string> file;       // replaces the model's own template
  std::vector<std::string> assignments;  // NAME=JSON
};

// --chat-template and --set. `options` must outlive `command`.
void add_template_options(CLI::App& command, TemplateOptions& options);

// Throws InputError when there is no template, or when it is malformed.
ModelChatTemplate load_template(const std::string& model, const TemplateOptions& options);

// The object of --set's assignments. Throws InputError on anything but NAME=JSON.
nlohmann::ordered_json assigned_variables(const TemplateOptions& options);

constexpr std::size_t kMaxConversationBytes = std::size_t{256} << 20;

// Reads a file, or standard input for "-". Throws as read_input and parse_template_input do.
TemplateInput read_conversation(const std::string& file);

// Warns where `text`, which the template made of `input`, is the same without the conversation's tools; `where` begins
// the warning. Returns whether it did.
bool warn_of_tools_left_out(const ModelChatTemplate& chat_template, const TemplateInput& input, const std::string& text,
                            const std::string& where);

}  // namespace heddle
