// The growing conversation of a chat.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/model_chat_template.h"

namespace heddle {

class Conversation {
 public:
  enum class End : std::uint8_t { whole, length, interrupted };

  Conversation() = default;

  // From a saved or handwritten conversation. Throws InputError, which begins with `where`, when a message has no role, or
  // neither content nor tool calls.
  Conversation(TemplateInput saved, std::string_view where);

  // In the form that a chat template takes.
  const TemplateInput& input() const { return input_; }
  std::size_t num_messages() const { return input_.messages.size(); }

  void add_user(std::string_view content);
  // An incomplete answer has its reason in "finish_reason" ("length" or "interrupted"), which templates ignore.
  void add_answer(std::string_view content, End end);

  // An exchange is a user's message and what follows it up to the next one.
  std::size_t num_exchanges() const;
  // Drops the last exchange. Returns false if there is none.
  bool drop_exchange();
  // Drops what follows the user's last message. Returns false if there is no such message.
  bool drop_answer();
  // The input without the first `count` exchanges; what stands before the first one, as a system message, stays.
  TemplateInput input_without(std::size_t count) const;

  void clear();  // keeps the system message, tools and documents

  std::optional<std::string> system() const;
  void set_system(std::optional<std::string> text);  // nothing: no system message
  void set_variables(nlohmann::ordered_json variables) { input_.extra = std::move(variables); }  // not saved

  // For --load and heddle template --file; bytes that are not UTF-8 become U+FFFD.
  std::string json() const;

 private:
  bool begins_with_system() const;
  std::vector<std::size_t> exchanges() const;  // the first message of each

  TemplateInput input_;
};

}  // namespace heddle
