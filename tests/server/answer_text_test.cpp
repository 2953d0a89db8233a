// Reasoning, content and calls, however the text is cut.
#include "server/answer_text.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

// The parts, joined: "r[...]" reasoning, "c[...]" content, "t[name arguments]" a call.
std::string split(const std::string& text, std::size_t piece, const AnswerForm& form) {
  AnswerText answer(form);
  std::vector<AnswerPart> parts;
  const auto take = [&](const std::vector<AnswerPart>& more) {
    for (const AnswerPart& part : more) add_part(part.kind, part.text, parts);
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(answer.push(text.substr(at, piece)));
  take(answer.finish());
  std::string all;
  int num_calls = 0;
  for (const AnswerPart& part : parts) switch (part.kind) {
      case AnswerPart::Kind::reasoning:
        all += "r[" + part.text + "]";
        break;
      case AnswerPart::Kind::content:
        all += "c[" + part.text + "]";
        break;
      case AnswerPart::Kind::call:
        all += "t[" + part.text + "]";
        ++num_calls;
        break;
      case AnswerPart::Kind::arguments:
        all += "a[" + part.text + "]";
        break;
    }
  EXPECT_EQ(answer.num_calls(), num_calls);
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
       "c[a]t[f]a[{\"x\": 1}]"},
      {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>", ToolFormat::tagged,
       R::none, "t[f]a[{}]t[g]a[{}]"},
      {"<tool_call>no json</tool_call> x", ToolFormat::tagged, R::none, "c[<tool_call>no json</tool_call> x]"},
      {"<tool_call>{\"name\": \"f\"", ToolFormat::tagged, R::none, "c[<tool_call>{\"name\": \"f\"]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"}</tool_call>", ToolFormat::tagged, R::none,
       "t[f]a[{\"x\": \"}</tool_call>]"},  // cut within a string
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": [</tool_call> y", ToolFormat::tagged, R::none,
       "t[f]a[{\"x\": []c[y]"},
      {"<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", ToolFormat::tagged, R::none,
       "t[f]a[{\"x\":1}]"},  // the other way round: known at its end
      {"a < b <tool", ToolFormat::tagged, R::none, "c[a < b <tool]"},
      {"{\"name\": \"f\", \"parameters\": {\"x\": \"a;b\"}}", ToolFormat::json, R::none, "t[f]a[{\"x\":\"a;b\"}]"},
      {"{\"name\": \"f\"}; {\"name\": \"g\"}", ToolFormat::json, R::none, "t[f]a[{}]t[g]a[{}]"},
      {"{\"x\": 1}", ToolFormat::json, R::none, "c[{\"x\": 1}]"},
      {"hello {", ToolFormat::json, R::none, "c[hello {]"},
      {"<think>why</think>\n\nbecause", ToolFormat::none, R::closed, "r[why]c[because]"},
      {"why</think>because", ToolFormat::none, R::open, "r[why]c[because]"},
      {"because <think>", ToolFormat::none, R::closed, "c[because <think>]"},
      {"<thin", ToolFormat::none, R::closed, "c[<thin]"},
      {"why</thi", ToolFormat::none, R::open, "r[why</thi]"},
      {"<think>t</think><tool_call>{\"name\": \"f\"}</tool_call>", ToolFormat::tagged, R::closed, "r[t]t[f]a[{}]"},
  };
  for (const Case& each : cases)
    for (const std::size_t piece : {1, 2, 3, 7, 1000})
      EXPECT_EQ(split(each.text, piece, {.tools = each.tools, .reasoning = each.reasoning}), each.expected)
          << each.text << " by " << piece;
}

TEST(AnswerText, GivesOutACallWhileItIsWritten) {
  AnswerText answer({.tools = ToolFormat::tagged});
  EXPECT_TRUE(answer.push("<tool_call>{\"name\": \"f\"").empty());
  const auto begun = answer.push(", \"arguments\": {\"x\"");
  ASSERT_EQ(begun.size(), 2U);
  EXPECT_EQ(begun[0].text, "f");
  EXPECT_EQ(begun[1].text, "{\"x\"");
  EXPECT_EQ(answer.push(": \"</tool_call>").front().text, ": \"</tool_call>");  // within a string
  EXPECT_EQ(answer.push("\"}").front().text, "\"}");
  EXPECT_TRUE(answer.push("}\n</tool_call>").empty());
}

TEST(AnswerText, WithForcedCallsIsNothingElse) {
  const std::string two = "{\"name\": \"f\", \"parameters\": {\"x\": \";\"}}; {\"name\": \"g\", \"parameters\": {}}";
  const std::string tagged = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_ca";
  for (const std::size_t piece : {1, 2, 5, 1000}) {
    const AnswerForm json{.tools = ToolFormat::json, .only_calls = true};
    EXPECT_EQ(split(two, piece, json), "t[f]a[{\"x\": \";\"}]t[g]a[{}]");
    EXPECT_EQ(split(two.substr(0, two.size() - 2), piece, json), "t[f]a[{\"x\": \";\"}]t[g]a[{]");
    EXPECT_EQ(split(two.substr(0, 12), piece, json), "");
    EXPECT_EQ(split(tagged, piece, {.tools = ToolFormat::tagged, .only_calls = true}), "t[f]a[{}]");
  }
}

TEST(AnswerText, EndsBehindTheFirstCallWhereOneIsWanted) {
  const std::string tagged = "<tool_call>{\"name\": \"f\"}</tool_call> <tool_call>{\"name\": \"g\"}</tool_call>";
  const std::string json = "{\"name\": \"f\"}; {\"name\": \"g\"}";
  for (const std::size_t piece : {1, 5, 1000}) {
    EXPECT_EQ(split(tagged, piece, {.tools = ToolFormat::tagged, .one_call = true}), "t[f]a[{}]");
    EXPECT_EQ(split(json, piece, {.tools = ToolFormat::json, .one_call = true}), "t[f]a[{}]");
  }
}

}  // namespace
}  // namespace heddle::server
