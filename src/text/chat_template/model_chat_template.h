// The chat templates of a Hugging Face folder, and the variables that transformers gives them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/chat_template/chat_template.h"

namespace heddle {

struct TemplateInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // an array, or null: none
  nlohmann::ordered_json documents;  // an array, or null: none
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // the user's own variables, which win
};

// Of text: {"messages": [...], "tools"?: [...], "documents"?: [...]} or a bare array of messages. Throws InputError on
// anything else: unknown members, messages or documents that are no objects.
TemplateInput parse_template_input(std::string_view text, std::string_view where);

class ModelChatTemplate {
 public:
  // A template in place of all that a model has; it is given the model's special tokens.
  using Override = std::optional<std::filesystem::path>;

  // Reads tokenizer_config.json (chat_template, one or a list of named ones, and the special tokens), and in place of
  // its templates chat_template.jinja and additional_chat_templates/*.jinja where there are any; special tokens also of
  // special_tokens_map.json, which wins where tokenizer_config.json has no added_tokens_decoder, and else is not read.
  // Throws InputError when one of them is no template, or there is none at all.
  static ModelChatTemplate load(const std::filesystem::path& folder, const Override& file = {});
  // Of a tokenizer_config.json in memory.
  static ModelChatTemplate from_config(std::string_view tokenizer_config, std::string where, const Override& file = {});

  // With the template "tool_use" where there is one and the conversation has tools, else with "default".
  std::string render(const TemplateInput& conversation, const RenderOptions& options = {}) const;

  // By name, as far as the model has them: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token,
  // mask_token, and those of its own: fields whose names end in _token, and members of extra_special_tokens.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  void add_file(const std::string& name, const std::filesystem::path& path);
  bool read_config(std::string_view text, const std::string& where);  // whether it lists the tokens' ids, too
  void read_tokens(const JsonField& root);
  void read_templates(const JsonField& root);

  std::string where_;
  std::map<std::string, ChatTemplate> templates_;
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace heddle
