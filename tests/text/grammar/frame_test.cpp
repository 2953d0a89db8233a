// What stands around a form: marks, several of them, reasoning before.
#include "text/grammar/frame.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "matches.h"

namespace heddle::grammar {
namespace {

TEST(Frame, MarksBeginAndEndEachForm) {
  const GrammarSource source{.kind = GrammarSource::Kind::regex,
                             .text = "a+",
                             .frame = {.open = "<c>", .close = "</c>", .separator = "\n", .most = 3}};
  for (const char* text : {"<c>a</c>", "<c>aa</c>\n<c>a</c>", "<c>a</c>\n<c>a</c>\n<c>aaa</c>"})
    EXPECT_TRUE(matches(source, text)) << text;
  for (const char* text :
       {"", "a", "<c></c>", "<c>a</c>\n", "<c>a</c><c>a</c>", "<c>a</c>\n<c>a</c>\n<c>a</c>\n<c>a</c>"})
    EXPECT_FALSE(matches(source, text)) << text;
}

TEST(Frame, StandsAroundEveryKindOfForm) {
  EXPECT_TRUE(matches({.frame = {.open = "x"}}, "x{\"a\": 1}"));
  EXPECT_TRUE(matches(
      {.kind = GrammarSource::Kind::json_schema, .text = R"({"type": "null"})", .frame = {.close = "y"}}, "nully"));
  EXPECT_TRUE(
      matches({.kind = GrammarSource::Kind::choice, .choices = {"b"}, .frame = {.separator = ",", .most = kUnbounded}},
              "b,b,b,b"));
}

TEST(Frame, APreambleEndsAtItsFirstMark) {
  GrammarSource source{.kind = GrammarSource::Kind::choice,
                       .choices = {"yes"},
                       .frame = {.preamble = Frame::Preamble::begun, .preamble_open = "<t>", .preamble_close = "</t>"}};
  for (const char* text : {"</t>yes", "why</t>yes", "</</t>yes", "</</t</t> \n\nyes", "<t>a</t>yes", "\xff</t>yes"})
    EXPECT_TRUE(matches(source, text)) << text;
  for (const char* text : {"yes", "why</t>", "</t>no", "</t>yes</t>yes", "</t>      yes"})
    EXPECT_FALSE(matches(source, text)) << text;
  source.frame.preamble = Frame::Preamble::optional;
  for (const char* text : {"yes", "<t></t>yes", "<t>a <t> b</t>yes"}) EXPECT_TRUE(matches(source, text)) << text;
  for (const char* text : {"</t>yes", "why</t>yes", "<t>yes"}) EXPECT_FALSE(matches(source, text)) << text;
}

}  // namespace
}  // namespace heddle::grammar
