#include "cli/chat/conversation.h"

#include <utility>

#include "base/error.h"

namespace heddle {

using nlohmann::ordered_json;

Conversation::Conversation(TemplateInput saved, std::string_view where) : input_(std::move(saved)) {
  for (std::size_t i = 0; i < input_.messages.size(); ++i) {
    const ordered_json& message = input_.messages[i];
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string())
      throw_error<InputError>("{}: messages[{}]: expected an object with a \"role\"", where, i);
    if (!message.contains("content") && !message.contains("tool_calls"))  // which templates read without asking
      throw_error<InputError>("{}: messages[{}]: has no \"content\"", where, i);
  }
}

void Conversation::add_user(std::string_view content) {
  input_.messages.push_back(ordered_json{{"role", "user"}, {"content", content}});
}

void Conversation::add_answer(std::string_view content, End end) {
  ordered_json message{{"role", "assistant"}, {"content", content}};
  if (end != End::whole) message["finish_reason"] = end == End::length ? "length" : "interrupted";
  input_.messages.push_back(std::move(message));
}

std::vector<std::size_t> Conversation::exchanges() const {
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < input_.messages.size(); ++i)
    if (input_.messages[i].at("role") == "user") first.push_back(i);
  return first;
}

std::size_t Conversation::num_exchanges() const {
  return exchanges().size();
}

bool Conversation::drop_exchange() {
  const std::vector<std::size_t> first = exchanges();
  if (first.empty()) return false;
  auto& messages = input_.messages.get_ref<ordered_json::array_t&>();
  messages.resize(first.back());
  return true;
}

bool Conversation::drop_answer() {
  const std::vector<std::size_t> first = exchanges();
  if (first.empty()) return false;
  auto& messages = input_.messages.get_ref<ordered_json::array_t&>();
  messages.resize(first.back() + 1);
  return true;
}

TemplateInput Conversation::input_without(std::size_t count) const {
  TemplateInput input = input_;
  const std::vector<std::size_t> first = exchanges();
  if (count == 0 || count >= first.size()) return input;
  auto& messages = input.messages.get_ref<ordered_json::array_t&>();
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(first[0]),
                 messages.begin() + static_cast<std::ptrdiff_t>(first[count]));
  return input;
}

void Conversation::clear() {
  ordered_json kept = ordered_json::array();
  if (begins_with_system()) kept.push_back(input_.messages.front());
  input_.messages = std::move(kept);
}

bool Conversation::begins_with_system() const {
  return !input_.messages.empty() && input_.messages.front().at("role") == "system";
}

std::optional<std::string> Conversation::system() const {
  if (!begins_with_system()) return std::nullopt;
  const ordered_json& message = input_.messages.front();
  const auto content = message.find("content");
  if (content == message.end()) return std::string();
  return content->is_string() ? content->get<std::string>() : content->dump();
}

void Conversation::set_system(std::optional<std::string> text) {
  ordered_json& messages = input_.messages;
  if (begins_with_system()) messages.erase(0);
  if (text) messages.insert(messages.begin(), ordered_json{{"role", "system"}, {"content", *text}});
}

std::string Conversation::json() const {
  ordered_json object{{"messages", input_.messages}};
  if (!input_.tools.is_null()) object["tools"] = input_.tools;
  if (!input_.documents.is_null()) object["documents"] = input_.documents;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heddle
