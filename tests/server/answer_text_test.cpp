// Reasoning, content and calls, however the text is cut.
#include "server/answer_text.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

// The parts, joined: "r[...]" reasoning, "c[...]" content, "t[name arguments]" a call.
std::string split(const std::string& text, std::size_t piece, ToolFormat tools,
                  AnswerText::Reasoning reasoning = AnswerText::Reasoning::none) {
  AnswerText answer(tools, reasoning);
  std::vector<AnswerPart> parts;
  const auto take = [&](std::vector<AnswerPart> more) {
    for (AnswerPart& part : more)
      if (!parts.empty() && parts.back().kind == part.kind && part.kind != AnswerPart::Kind::tool_call)
        parts.back().text += part.text;
      else
        parts.push_back(std::move(part));
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(answer.push(text.substr(at, piece)));
  take(answer.finish());
  std::string all;
  for (const AnswerPart& part : parts) switch (part.kind) {
      case AnswerPart::Kind::reasoning:
        all += "r[" + part.text + "]";
        break;
      case AnswerPart::Kind::content:
        all += "c[" + part.text + "]";
        break;
      case AnswerPart::Kind::tool_call:
        all += "t[" + part.name + " " + part.arguments + "]";
        break;
    }
  return all;
}

struct Case {
  std::string text;
  ToolFormat tools;
  AnswerText::Reasoning reasoning;
  std::string expected;
};

TEST(AnswerText, IsTheSameHoweverItIsCut) {
  using R = AnswerText::Reasoning;
  const Case cases[] = {
      {"plain", ToolFormat::none, R::none, "c[plain]"},
      {"a <tool_call> b", ToolFormat::none, R::none, "c[a <tool_call> b]"},
      {"a<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>", ToolFormat::tagged, R::none,
       "c[a]t[f {\"x\":1}]"},
      {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>", ToolFormat::tagged,
       R::none, "t[f {}]t[g {}]"},
      {"<tool_call>no json</tool_call> x", ToolFormat::tagged, R::none, "c[<tool_call>no json</tool_call> x]"},
      {"<tool_call>{\"name\": \"f\"", ToolFormat::tagged, R::none, "c[<tool_call>{\"name\": \"f\"]"},
      {"a < b <tool", ToolFormat::tagged, R::none, "c[a < b <tool]"},
      {"{\"name\": \"f\", \"parameters\": {\"x\": \"a;b\"}}", ToolFormat::json, R::none, "t[f {\"x\":\"a;b\"}]"},
      {"{\"name\": \"f\"}; {\"name\": \"g\"}", ToolFormat::json, R::none, "t[f {}]t[g {}]"},
      {"{\"x\": 1}", ToolFormat::json, R::none, "c[{\"x\": 1}]"},
      {"hello {", ToolFormat::json, R::none, "c[hello {]"},
      {"<think>why</think>\n\nbecause", ToolFormat::none, R::closed, "r[why]c[because]"},
      {"why</think>because", ToolFormat::none, R::open, "r[why]c[because]"},
      {"because <think>", ToolFormat::none, R::closed, "c[because <think>]"},
      {"<thin", ToolFormat::none, R::closed, "c[<thin]"},
      {"why</thi", ToolFormat::none, R::open, "r[why</thi]"},
      {"<think>t</think><tool_call>{\"name\": \"f\"}</tool_call>", ToolFormat::tagged, R::closed, "r[t]t[f {}]"},
  };
  for (const Case& each : cases)
    for (const std::size_t piece : {1, 2, 3, 7, 1000})
      EXPECT_EQ(split(each.text, piece, each.tools, each.reasoning), each.expected) << each.text << " by " << piece;
}

}  // namespace
}  // namespace heddle::server
