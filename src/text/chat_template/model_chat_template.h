// The chat templates of a Hugging Face folder, and the variables that transformers gives them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template/chat_template.h"

namespace heddle {

struct TemplateInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // an array, or null: none
  nlohmann::ordered_json documents;  // an array, or null: none
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // the user's own variables, which take precedence
};

// Parses {"messages": [...], "tools"?: [...], "documents"?: [...]} or an array of messages. Throws InputError on
// anything else: unknown members, messages or documents that are not objects.
TemplateInput parse_template_input(std::string_view text, std::string_view where);

// The same for a parsed value.
TemplateInput template_input_of(nlohmann::ordered_json root, std::string_view where);

class ModelChatTemplate {
 public:
  // A template that replaces all of the model's; it gets the model's special tokens.
  using Override = std::optional<std::filesystem::path>;

  // Thrown where there is no template at all.
  struct Missing : InputError {
    using InputError::InputError;
  };

  // Reads tokenizer_config.json: chat_template (one, or a list of named ones) and the special tokens.
  // chat_template.jinja and additional_chat_templates/*.jinja replace its templates if they exist. If
  // tokenizer_config.json has no added_tokens_decoder, the special tokens of special_tokens_map.json are read too and
  // take precedence. Throws InputError when a template is invalid, and Missing when there is none.
  static ModelChatTemplate load(const std::filesystem::path& folder, const Override& file = {});
  // From the text of a tokenizer_config.json.
  static ModelChatTemplate from_config(std::string_view tokenizer_config, std::string where, const Override& file = {});

  // Uses the template "tool_use" if it exists and the conversation has tools, else "default".
  std::string render(const TemplateInput& conversation, const RenderOptions& options = {}) const;

  std::vector<std::string> names() const;  // of its templates: "default", "tool_use"

  // By name, those that the model has: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token,
  // and its own: fields whose names end in _token, and members of extra_special_tokens.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  void add_file(const std::string& name, const std::filesystem::path& path);
  bool read_config(std::string_view text, const std::string& where);  // returns whether it lists the tokens' ids, too
  void read_tokens(const JsonField& root);
  void read_templates(const JsonField& root);

  std::string where_;
  std::map<std::string, ChatTemplate> templates_;
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace heddle
