// A conversation as chat templates take it: messages with roles, and the tools that the model may call.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

class Conversation {
 public:
  Conversation() = default;

  // A bare array of messages, or {"messages": [...], "tools": [...]}: what `heddle template --file` takes. `where`
  // begins messages about it. Throws InputError when a message is no object with a role, and as parse_json does.
  static Conversation parse(std::string_view text, std::string_view where);

  // In the order of their keys, which templates may print.
  const nlohmann::ordered_json& messages() const { return messages_; }
  const nlohmann::ordered_json& tools() const { return tools_; }  // null: none

  void add(std::string_view role, std::string_view content);
  void drop_last();
  void clear();  // but for the system message and the tools

  std::optional<std::string> system() const;
  void set_system(std::optional<std::string> text);  // nothing: without

  // Messages of users and of the model.
  std::size_t num_turns() const;

  // {"messages": [...]}, with "tools" where there are any; bytes that are not UTF-8 become U+FFFD.
  std::string json() const;

 private:
  bool begins_with_system() const;

  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools_;
};

}  // namespace heddle
