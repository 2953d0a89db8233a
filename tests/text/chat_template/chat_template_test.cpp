// Limits, and invalid templates.
#include "text/chat_template/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Small, so that the tests are fast.
constexpr TemplateLimits kSmall = {
    .max_steps = 300'000, .max_output_bytes = 100'000, .max_value_bytes = 4'000'000, .max_depth = 800};

std::string error_of(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  try {
    ChatTemplate::parse(source, "T").render(variables, {.limits = kSmall, .local_time = {}});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(TemplateValues, GroupsHaveNamesForTheirParts) {
  const ordered_json rows = {{"rows", {{{"n", "a"}, {"v", 1}}, {{"n", "b"}, {"v", 2}}, {{"n", "a"}, {"v", 3}}}}};
  const auto render = [&](const std::string& source) {
    return ChatTemplate::parse(source, "T").render(rows, {.limits = kSmall, .local_time = {}});
  };
  EXPECT_EQ(render("{% for g in rows|groupby('n') %}{{ g.grouper }}:{{ g.list|map(attribute='v')|join(',') }};"
                   "{% endfor %}"),
            "a:1,3;b:2;");
  EXPECT_EQ(render("{{ rows|groupby('n')|map(attribute='grouper')|list }}{{ (rows|groupby('n'))[0]['list']|length }}"),
            "['a', 'b']2");
  EXPECT_EQ(render("{{ (1, 2).grouper is defined }}"), "False");
}

TEST(TemplateLimits, StopALoopThatDoesNotEnd) {
  EXPECT_THAT(
      error_of("\n{% for a in range(99999) %}{% for b in range(99999) %}\n{% set x = 1 %}{% endfor %}{% endfor %}"),
      AllOf(HasSubstr("max_steps"), HasSubstr("T, line ")));
}

TEST(TemplateLimits, StopRecursion) {
  EXPECT_THAT(error_of("{% macro m() %}\n{{ m() }}{% endmacro %}{{ m() }}"),
              AllOf(HasSubstr("max_depth"), HasSubstr("line 2")));
  EXPECT_THAT(error_of("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% if true %}{{ a() }}{% endif %}{% "
                       "endmacro %}{{ a() }}"),
              HasSubstr("max_depth"));
  EXPECT_THAT(error_of("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), HasSubstr("max_depth"));
}

TEST(TemplateLimits, StopWhatBuildsTooMuch) {
  for (const char* source :
       {"{% set x = 'a' * 999999999999 %}", "{% set x = [1] * 999999999999 %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ 'aaaaaaaaaa' | replace('', 'b' * 1000000) }}", "{{ 'a'.center(99999999999) }}",
        "{{ '%99999d' % 1 ~ ('{:99999}'.format(1) * 99) }}", "{{ (['a'] * 9999) | join('b' * 9999) }}",
        "{{ ('a\\n' * 9999) | indent(9999) }}", "{{ [1] | batch(99999999999, 0) | list }}",
        "{{ '7'.zfill(999999999999) }}", "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
        "{% set x = range(99999) | list | tojson(indent=999) %}"}) {
    EXPECT_THAT(error_of(source), AllOf(HasSubstr("max_value_bytes"), HasSubstr("line 1"))) << source;
  }
}

TEST(TemplateLimits, StopOutput) {
  EXPECT_THAT(error_of("{% for i in range(9999) %}{{ 'a' * 99 }}{% endfor %}"), HasSubstr("max_output_bytes"));
  EXPECT_THAT(
      error_of("{% macro m() %}{% for i in range(9999) %}{{ 'a' * 99 }}{% endfor %}{% endmacro %}{% set x = m() %}"),
      HasSubstr("max_output_bytes"));
}

TEST(TemplateLimits, StopDeepValues) {
  EXPECT_THAT(error_of("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("max_value_depth = 200"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"), HasSubstr("max_depth"));
  ordered_json deep = 1;
  for (int i = 0; i < 300; ++i) deep = ordered_json::array({deep});
  EXPECT_THAT(error_of("{{ a }}", {{"a", deep}}), HasSubstr("deeper than"));
}

TEST(TemplateLimits, StopDeepTemplates) {
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("[", "]"), std::pair("{1:", "}"), std::pair("not ", ""), std::pair("-", ""),
        std::pair("f(", ")"), std::pair("1+(", ")"), std::pair("1 if 1 else ", "")})
    EXPECT_THAT(error_of("{{ " + repeated(open, 20'000) + "1" + repeated(close, 20'000) + " }}"),
                HasSubstr("deeper than"))
        << open;
  for (const char* tail : {".a", "[0]", "()", "|upper"})
    EXPECT_THAT(error_of("{{ a" + repeated(tail, 20'000) + " }}"), HasSubstr("deeper than")) << tail;
  for (const auto& [open, close] :
       {std::pair("{% if 1 %}", "{% endif %}"), std::pair("{% for a in b %}", "{% endfor %}"),
        std::pair("{% macro a() %}", "{% endmacro %}")})
    EXPECT_THAT(error_of(repeated(open, 20'000) + repeated(close, 20'000)), HasSubstr("deeper than")) << open;
  EXPECT_THAT(error_of("{% set " + repeated("(", 20'000) + "a" + repeated(")", 20'000) + " = 1 %}"),
              HasSubstr("deeper than"));
}

// A long chain is evaluated in a loop, not recursively.
TEST(ChatTemplate, TakesChainsOfAnyLength) {
  const auto render = [](const std::string& source) { return ChatTemplate::parse(source, "T").render({{"s", "ab"}}); };
  EXPECT_EQ(render("{{ 0" + repeated(" + 1", 5000) + " }}"), "5000");
  EXPECT_EQ(render("{{ 0" + repeated(" - 1 * 2", 5000) + " }}"), "-10000");
  EXPECT_EQ(render("{{ 0" + repeated(" ~ 1", 5000) + " }}"), "0" + repeated("1", 5000));
  EXPECT_EQ(render("{{ s" + repeated(" + s", 1000) + " }}"), repeated("ab", 1001));
  EXPECT_EQ(render("{{ 0" + repeated(" or 0", 5000) + " or 7 }}"), "7");
  EXPECT_EQ(render("{{ 1" + repeated(" and 2", 5000) + " and 0 and x.y }}"), "0");
  EXPECT_EQ(render("{{ 1" + repeated(" < 2 > 1", 5000) + " }}"), "True");
}

TEST(TemplateLimits, StopIntegersBeyond64Bits) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}", "{{ 9223372036854775808 }}",
                             "{{ -9223372036854775807 - 2 }}", "{{ 1e300 | int }}", "{{ 99999999999 * 99999999999 }}",
                             "{{ (-9223372036854775807 - 1) // -1 }}", "{{ '99999999999999999999' | int }}"})
    EXPECT_THAT(error_of(source), HasSubstr("64 bits")) << source;
  EXPECT_EQ(error_of("{{ (-9223372036854775807 - 1) % -1 }}"), "no error");
}

TEST(ChatTemplate, NamesWhatItDoesNotHaveOfJinja2) {
  EXPECT_THAT(error_of("{{ self }}"), "T, line 1: jinja2's variable 'self' is not supported");
  EXPECT_THAT(error_of("{{ lipsum(2) }}"), HasSubstr("'lipsum' is not supported"));
  EXPECT_EQ(error_of("{% set self = 1 %}{{ self }}"), "no error");
  EXPECT_EQ(error_of("{{ lipsum }}", {{"lipsum", "mine"}}), "no error");
  EXPECT_THAT(error_of("\n{{ [1] | random }}"), "T, line 2: jinja2's filter 'random' is not supported");
  EXPECT_THAT(error_of("{{ 'x' | urlize }}"), HasSubstr("filter 'urlize' is not supported"));
  for (const char* filter : {"center", "filesizeformat", "forceescape", "pprint", "striptags", "urlencode", "wordcount",
                             "wordwrap", "xmlattr"})
    EXPECT_THAT(error_of(fmt::format("{{{{ 'x' | {} }}}}", filter)),
                HasSubstr(fmt::format("filter '{}' is not", filter)));
}

TEST(ChatTemplate, NamesTheLineOfAnError) {
  EXPECT_THAT(error_of("\n\n{{ raise_exception('own words') }}"), "T, line 3: own words");
  EXPECT_THAT(error_of("{% if true %}\n{{ x.y }}{% endif %}"), "T, line 2: 'x' is undefined");
  EXPECT_THAT(error_of("\n{{ 1 | nosuch }}"), "T, line 2: No filter named 'nosuch'.");
  EXPECT_THAT(error_of("\n{{ 1 is nosuch }}"), "T, line 2: No test named 'nosuch'.");
  EXPECT_THAT(error_of("\n\n{% for %}"), HasSubstr("T, line 3: "));
  EXPECT_THAT(error_of("\n{% include 'x' %}"), HasSubstr("T, line 2: "));
}

// A terminal obeys control characters, and templates are untrusted.
TEST(ChatTemplate, EscapesAndCutsMessages) {
  EXPECT_EQ(error_of("{{ raise_exception('no\\n\\x1b[31m \\x9b way') }}"), "T, line 1: no\\n\\u001b[31m \\u009b way");
  EXPECT_EQ(error_of("{{ x['\\x1b'].y }}", {{"x", ordered_json::object()}}).find('\x1b'), std::string::npos);
  EXPECT_EQ(error_of("{% \x1b %}").find('\x1b'), std::string::npos);
  EXPECT_EQ(error_of("{{ 1 | no\xc2\x9b }}").find("\xc2\x9b"), std::string::npos);
  EXPECT_LT(error_of("{{ raise_exception('\u4e2d' * 9999) }}").size(), 1100u);
}

TEST(ChatTemplate, RefusesTextThatIsNoUtf8) {
  for (const char* source : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80", "{{ '\\ud800' }}"})
    EXPECT_THROW(ChatTemplate::parse(source, "T"), InputError) << source;
  EXPECT_THAT(error_of("{{ a }}", {{"a", "\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THROW(ChatTemplate::parse(std::string((1 << 20) + 1, 'a'), "T"), InputError);
}

TEST(ChatTemplate, LeavesNothingBehindThatHoldsItself) {  // for the leak sanitizer
  EXPECT_EQ(error_of("{% set ns = namespace() %}{% set ns.me = [ns] %}{% macro m() %}{% endmacro %}{% set a = [m] %}"
                     "{% for i in [1, 2] %}{% macro inner() %}{{ loop.index }}{% endmacro %}{% set ns.i = inner %}{% "
                     "set q = loop.changed(loop) %}{% endfor %}"),
            "no error");
}

TEST(ChatTemplate, TakesALongMessageInLinearTime) {
  const std::string message(20'000'000, 'x');
  const auto parsed = ChatTemplate::parse("{% for m in messages %}{{ '<' + m.content | trim + '>' }}{% endfor %}", "T");
  EXPECT_EQ(parsed.render({{"messages", ordered_json::array({{{"content", message}}})}}).size(), message.size() + 2);
}

}  // namespace
}  // namespace heddle
