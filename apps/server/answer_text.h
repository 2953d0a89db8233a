// Splits the text of a chat's answer, as it grows, into reasoning, content and calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::server {

// How a model writes calls of tools.
enum class ToolFormat : std::uint8_t {
  none,
  tagged,  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, each (Hermes, Qwen)
  json     // the whole answer is {"name": ..., "parameters": {...}}, or several with ; between (Llama 3)
};

struct AnswerPart {
  enum class Kind : std::uint8_t { reasoning, content, tool_call };
  Kind kind = Kind::content;
  std::string text;       // of reasoning and content
  std::string name;       // of a call
  std::string arguments;  // of a call: a JSON object
};

class AnswerText {
 public:
  enum class Reasoning : std::uint8_t {
    none,    // the model has no <think>
    closed,  // it may begin with <think>
    open     // the prompt has written <think> already
  };

  AnswerText(ToolFormat tools, Reasoning reasoning);

  // Takes text that has become final, and returns what is certain by now.
  std::vector<AnswerPart> push(std::string_view text);

  // Returns the rest; a call that is not complete is content.
  std::vector<AnswerPart> finish();

  int num_calls() const { return num_calls_; }

 private:
  enum class State : std::uint8_t { start, reasoning, content, call, whole };

  bool advance(std::vector<AnswerPart>& parts, bool last);
  void emit(AnswerPart::Kind kind, std::size_t bytes, std::vector<AnswerPart>& parts);
  bool take_until(std::string_view tag, AnswerPart::Kind kind, State next, std::vector<AnswerPart>& parts, bool last);
  bool add_call(std::string_view json, std::vector<AnswerPart>& parts);
  bool add_calls(std::vector<AnswerPart>& parts);

  ToolFormat tools_;
  State state_;
  std::string held_;
  bool skips_spaces_ = false;  // those behind reasoning and between calls are nobody's
  int num_calls_ = 0;
};

}  // namespace heddle::server
