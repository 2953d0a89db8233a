#include "cli/chat_conversation.h"

#include "base/error.h"
#include "base/json.h"

namespace heddle {

using nlohmann::ordered_json;

Conversation Conversation::parse(std::string_view text, std::string_view where) {
  const nlohmann::json checked = parse_json(text, where);
  const JsonField root(checked, std::string(where));
  for (const JsonField& message : (root.is_array() ? root : root.at("messages")).elements()) message.at("role").text();
  if (root.is_object())
    if (const auto tools = root.find("tools")) tools->elements();

  ordered_json ordered = ordered_json::parse(text);
  Conversation conversation;
  conversation.messages_ = ordered.is_array() ? ordered : ordered["messages"];
  if (ordered.is_object() && ordered.contains("tools")) conversation.tools_ = ordered["tools"];
  return conversation;
}

void Conversation::add(std::string_view role, std::string_view content) {
  messages_.push_back(ordered_json{{"role", role}, {"content", content}});
}

void Conversation::drop_last() {
  require(!messages_.empty(), "conversation: no message to drop");
  messages_.erase(messages_.size() - 1);
}

void Conversation::clear() {
  ordered_json kept = ordered_json::array();
  if (begins_with_system()) kept.push_back(messages_.front());
  messages_ = std::move(kept);
}

bool Conversation::begins_with_system() const {
  return !messages_.empty() && messages_.front()["role"] == "system";
}

std::optional<std::string> Conversation::system() const {
  if (!begins_with_system()) return std::nullopt;
  const ordered_json& message = messages_.front();
  const auto content = message.find("content");
  if (content == message.end()) return std::string();
  return content->is_string() ? content->get<std::string>() : content->dump();
}

void Conversation::set_system(std::optional<std::string> text) {
  if (begins_with_system()) messages_.erase(0);
  if (text) messages_.insert(messages_.begin(), ordered_json{{"role", "system"}, {"content", *text}});
}

std::size_t Conversation::num_turns() const {
  return messages_.size() - (begins_with_system() ? 1 : 0);
}

std::string Conversation::json() const {
  ordered_json object{{"messages", messages_}};
  if (!tools_.is_null()) object["tools"] = tools_;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heddle
