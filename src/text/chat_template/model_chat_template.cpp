#include "text/chat_template/model_chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxShownName = 100;
constexpr std::array<std::string_view, 7> kNamedTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                          "pad_token", "cls_token", "mask_token"};

void check_objects(const ordered_json& list, std::string_view where, std::string_view name) {
  if (!list.is_array()) throw_error<InputError>("{}: {}: expected an array", where, name);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_object()) throw_error<InputError>("{}: {}[{}]: expected an object", where, name, i);
}

// A token is a string, or an object with its text and flags.
bool is_token(const JsonField& field) {
  return field.is_string() || (field.is_object() && field.value().contains("content"));
}
std::string token_text(const JsonField& field) {
  return field.is_object() ? field.at("content").text() : field.text();
}

}  // namespace

TemplateInput parse_template_input(std::string_view text, std::string_view where) {
  return template_input_of(parse_ordered_json(text, where), where);
}

TemplateInput template_input_of(ordered_json root, std::string_view where) {
  TemplateInput conversation;
  if (root.is_array()) {
    conversation.messages = std::move(root);
  } else if (root.is_object()) {
    if (!root.contains("messages")) throw_error<InputError>("{}: the field \"messages\" is missing", where);
    for (auto& [name, value] : root.items()) {
      if (name == "messages")
        conversation.messages = std::move(value);
      else if (name == "tools")
        conversation.tools = std::move(value);
      else if (name == "documents")
        conversation.documents = std::move(value);
      else
        throw_error<InputError>("{}: unknown field {}; a conversation has messages, tools and documents", where,
                                shorten(nlohmann::json(name)));
    }
  } else {
    throw_error<InputError>("{}: expected an array of messages, or an object with \"messages\"", where);
  }
  check_objects(conversation.messages, where, "messages");
  if (!conversation.tools.is_null()) check_objects(conversation.tools, where, "tools");
  if (!conversation.documents.is_null()) check_objects(conversation.documents, where, "documents");
  return conversation;
}

void ModelChatTemplate::add_file(const std::string& name, const std::filesystem::path& path) {
  templates_.emplace(name, ChatTemplate::parse(read_file(path, kMaxTemplateBytes), path.string()));
}

void ModelChatTemplate::read_tokens(const JsonField& root) {
  if (!root.is_object()) root.fail_expected("an object");
  for (const auto& [name, field] : root.members()) {
    if (!name.ends_with("_token") || field.value().is_null()) continue;
    if (is_token(field))
      special_tokens_[name] = token_text(field);
    else if (std::ranges::find(kNamedTokens, name) != kNamedTokens.end())
      field.fail_expected("a string, or an object with content");
  }
  if (const auto extra = root.find("extra_special_tokens"); extra && extra->is_object())
    for (const auto& [name, field] : extra->members()) special_tokens_[name] = token_text(field);
}

bool ModelChatTemplate::read_config(std::string_view text, const std::string& where) {
  const nlohmann::json config = parse_json(text, where);
  const JsonField root(config, where);
  read_tokens(root);
  read_templates(root);
  return root.find("added_tokens_decoder").has_value();
}

void ModelChatTemplate::read_templates(const JsonField& root) {
  const auto field = root.find("chat_template");
  if (!field || !templates_.empty()) return;  // files replace it
  if (field->is_string()) {
    templates_.emplace("default", ChatTemplate::parse(field->text(), field->path()));
    return;
  }
  for (const JsonField& named : field->elements()) {
    const std::string name = named.at("name").text();
    if (templates_.contains(name)) named.fail(fmt::format("a second chat template named \"{}\"", name));
    templates_.emplace(name,
                       ChatTemplate::parse(named.at("template").text(),
                                           fmt::format("{} \"{}\"", field->path(), printable(name, kMaxShownName))));
  }
}

ModelChatTemplate ModelChatTemplate::from_config(std::string_view tokenizer_config, std::string where,
                                                 const Override& file) {
  ModelChatTemplate result;
  if (file) result.add_file("default", *file);
  result.read_config(tokenizer_config, where);
  result.where_ = std::move(where);
  return result;
}

ModelChatTemplate ModelChatTemplate::load(const std::filesystem::path& folder, const Override& file) {
  namespace fs = std::filesystem;
  ModelChatTemplate result;
  std::error_code none;
  if (file) {
    result.add_file("default", *file);
  } else {
    if (fs::exists(folder / "chat_template.jinja", none)) result.add_file("default", folder / "chat_template.jinja");
    for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", none))
      if (entry.path().extension() == ".jinja") result.add_file(entry.path().stem().string(), entry.path());
  }
  const fs::path config = folder / "tokenizer_config.json", map = folder / "special_tokens_map.json";
  bool lists_tokens = false;
  if (fs::exists(config, none)) lists_tokens = result.read_config(read_file(config, kMaxConfigBytes), config.string());
  // As in transformers: a config that lists its tokens needs no map.
  if (!lists_tokens && fs::exists(map, none)) {
    const nlohmann::json tokens = parse_json(read_file(map, kMaxConfigBytes), map.string());
    result.read_tokens(JsonField(tokens, map.string()));
  }
  if (result.templates_.empty())
    throw_error<Missing>(
        "{}: has no chat template (no chat_template.jinja, and no chat_template in tokenizer_config.json)",
        folder.string());
  result.where_ = folder.string();
  return result;
}

std::vector<std::string> ModelChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& named : templates_) names.push_back(printable(named.first, kMaxShownName));
  return names;
}

std::string ModelChatTemplate::render(const TemplateInput& conversation, const RenderOptions& options) const {
  auto chosen = templates_.end();
  if (!conversation.tools.is_null()) chosen = templates_.find("tool_use");
  if (chosen == templates_.end()) chosen = templates_.find("default");
  if (chosen == templates_.end()) {
    if (templates_.empty()) throw_error<InputError>("{}: has no chat template", where_);
    throw_error<InputError>("{}: has no chat template named \"default\"; there are: {}", where_,
                            fmt::join(names(), ", "));
  }
  ordered_json variables = ordered_json::object();
  for (const auto& [name, token] : special_tokens_) variables[name] = token;
  variables["messages"] = conversation.messages;
  variables["tools"] = conversation.tools;
  variables["documents"] = conversation.documents;
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  for (const auto& [name, value] : conversation.extra.items()) variables[name] = value;
  return chosen->second.render(variables, options);
}

}  // namespace heddle
