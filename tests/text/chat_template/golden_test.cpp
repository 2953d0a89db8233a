// Every template compared with jinja2 as transformers configures it (tools/goldens/make_chat_templates.py).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/chat_template/chat_template.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

ordered_json read(const std::string& name) {
  const std::string path = std::string(HEDDLE_SOURCE_DIR) + "/tests/data/chat_template/" + name;
  return parse_ordered_json(read_file(path, std::size_t{16} << 20), path);
}

// The time of the goldens: Friday, 26 July 2024, 12:34:56.
std::tm golden_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 12;
  time.tm_min = 34;
  time.tm_sec = 56;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

void expect_golden(const std::string& source, const ordered_json& variables, const ordered_json& expected) {
  std::optional<std::string> text;
  std::string error;
  try {
    text = ChatTemplate::parse(source, "golden").render(variables, {.limits = {}, .local_time = golden_time()});
  } catch (const InputError& caught) {
    error = caught.what();
  }
  if (expected.contains("text")) {
    EXPECT_EQ(text.value_or("error: " + error), expected["text"].get<std::string>());
    return;
  }
  EXPECT_FALSE(text) << "expected an error: " << expected.dump() << ", got " << *text;
  // Messages of the template's own, and about undefined values, are jinja2's; an error in a malformed template has
  // jinja2's line.
  if (expected["error"] == "template") {
    EXPECT_THAT(error, HasSubstr(expected["message"].get<std::string>()));
  } else if (expected["error"] == "syntax") {
    EXPECT_THAT(error, HasSubstr(fmt::format("line {}:", expected["line"].get<int>())));
  }
}

TEST(Golden, ConversationsRenderAsInTransformers) {
  const ordered_json golden = read("conversations.json");
  ASSERT_GE(golden["cases"].size(), 60u);
  for (const ordered_json& one : golden["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    expect_golden(golden["templates"][one["template"].get<std::string>()].get<std::string>(), one["variables"],
                  one["expected"]);
  }
}

TEST(Golden, ExpressionsAndTagsAreAsInJinja2) {
  const ordered_json golden = read("snippets.json");
  ASSERT_GE(golden["cases"].size(), 1000u);
  for (const ordered_json& one : golden["cases"]) {
    SCOPED_TRACE(one["template"].get<std::string>());
    expect_golden(one["template"].get<std::string>(), golden["variables"], one["expected"]);
  }
}

}  // namespace
}  // namespace heddle
