// A piece of a chat's answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::server {

struct AnswerPart {
  enum class Kind : std::uint8_t {
    reasoning,
    content,
    call,      // a call of a tool begins; the text is the tool's name
    arguments  // more of the arguments of the call that has begun last, a JSON object as the model writes it
  };
  Kind kind = Kind::content;
  std::string text;
};

// Adds text to the last part if it is of this kind, otherwise a part. Nothing for an empty text, unless it is a name.
inline void add_part(AnswerPart::Kind kind, std::string_view text, std::vector<AnswerPart>& parts) {
  if (text.empty() && kind != AnswerPart::Kind::call) return;
  if (!parts.empty() && parts.back().kind == kind && kind != AnswerPart::Kind::call)
    parts.back().text += text;
  else
    parts.push_back({kind, std::string(text)});
}

}  // namespace heddle::server
