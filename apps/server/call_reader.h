// Reads one call of a tool, {"name": NAME, "arguments" or "parameters": {...}}, as it grows: the name as soon as the arguments begin, and
// then the arguments byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/answer_part.h"

namespace heddle::server {

class CallReader {
 public:
  enum class Outcome : std::uint8_t {
    more,   // the text so far is the beginning of a call
    done,   // the call has ended, its last brace is taken
    broken  // this is no such call: nothing has been given out and nothing taken
  };

  // Takes what it can from the front of `text` and adds parts. After a name has been given out, the call ends in any case:
  // with its last brace, or before a < outside of strings, which JSON has not.
  Outcome read(std::string& text, std::vector<AnswerPart>& parts);

  // Whether the name has been given out.
  bool begun() const { return state_ != State::head; }

 private:
  enum class State : std::uint8_t { head, arguments, tail };

  Outcome read_head(std::string& text, std::vector<AnswerPart>& parts);
  // The index behind the brace that closes `depth_` levels, the index of a <, or the text's size if there is neither.
  std::size_t scan(const std::string& text);

  State state_ = State::head;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool at_end_ = false;
};

}  // namespace heddle::server
