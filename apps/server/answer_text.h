// Splits the text of a chat's answer, as it grows, into reasoning, content and calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_part.h"
#include "server/call_reader.h"
#include "server/tool_format.h"

namespace heddle::server {

// What to look for in an answer.
struct AnswerForm {
  enum class Reasoning : std::uint8_t {
    none,    // the model has no <think>
    closed,  // it may begin with <think>
    open     // the prompt has written <think> already
  };
  ToolFormat tools = ToolFormat::none;
  Reasoning reasoning = Reasoning::none;
  bool only_calls = false;  // a grammar allows nothing but calls
  bool one_call = false;    // nothing behind the first call counts
};

class AnswerText {
 public:
  using Reasoning = AnswerForm::Reasoning;

  explicit AnswerText(const AnswerForm& form);

  // Takes text that has become final, and returns what is certain by now. A call's arguments come as they are written
  // where the text has told that it is a call: in tags, or where there is nothing else.
  std::vector<AnswerPart> push(std::string_view text);

  // Returns the rest. What may have become a call is content, or nothing where only calls are allowed; one that has begun
  // stays a call.
  std::vector<AnswerPart> finish();

  int num_calls() const { return num_calls_; }

  // Whether what follows does not count.
  bool ended() const { return state_ == State::ended; }

 private:
  enum class State : std::uint8_t {
    start,
    reasoning,
    content,
    call,        // within a tag
    after_call,  // before the tag's end
    whole,       // JSON that may be calls, as its end will tell
    calls,       // nothing but calls
    ended
  };

  State after_reasoning() const;
  bool advance(std::vector<AnswerPart>& parts, bool last);
  bool advance_call(std::vector<AnswerPart>& parts, bool last);
  void emit(AnswerPart::Kind kind, std::size_t bytes, std::vector<AnswerPart>& parts);
  bool take_until(std::string_view tag, AnswerPart::Kind kind, State next, std::vector<AnswerPart>& parts, bool last);
  bool add_call(std::string_view json, std::vector<AnswerPart>& parts);
  bool add_calls(std::vector<AnswerPart>& parts);
  void end_call(State next);

  AnswerForm form_;
  State state_;
  std::string held_;
  CallReader reader_;
  bool reader_gave_up_ = false;  // the call is written otherwise: its end will tell
  bool skips_spaces_ = false;    // those behind reasoning and between calls are nobody's
  int num_calls_ = 0;
};

}  // namespace heddle::server
