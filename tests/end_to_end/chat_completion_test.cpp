#include "cli/chat/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ChatCompletion, CompletesCommands) {
  EXPECT_EQ(complete_line("/res").inserted, "et");
  EXPECT_EQ(complete_line("/sa").inserted, "ve ");
  EXPECT_EQ(complete_line("/s").inserted, "");
  EXPECT_THAT(complete_line("/s").choices, ElementsAre("/save ", "/shift", "/system "));
  EXPECT_EQ(complete_line("/").choices.size(), 11u);
  for (const char* line : {"", "/zzz", "hello", "/system /sa"}) {
    EXPECT_EQ(complete_line(line).inserted, "") << line;
    EXPECT_THAT(complete_line(line).choices, IsEmpty()) << line;
  }
}

TEST(ChatCompletion, CompletesFileNamesBehindSaveAndLoad) {
  const TemporaryFolder folder;
  for (const char* name :
       {"first one.json", "second.json", "second.txt", ".hidden", "gr\u00fc\u00df", "gr\u00fc\u00dc"})
    write_file(folder.path() / name, "");
  std::filesystem::create_directory(folder.path() / "deep");
  const auto complete = [&](const std::string& name) {
    return complete_line("/save " + folder.path().string() + "/" + name);
  };
  EXPECT_EQ(complete("fi").inserted, "rst one.json");
  EXPECT_EQ(complete("s").inserted, "econd.");
  EXPECT_EQ(complete("second.j").inserted, "son");
  EXPECT_EQ(complete("d").inserted, "eep/");
  EXPECT_EQ(complete(".").inserted, "hidden");
  EXPECT_EQ(complete("g").inserted, "r\u00fc") << "not half a character";
  EXPECT_EQ(complete("").choices.size(), 6u) << "without what is hidden";
  EXPECT_EQ(complete("none").inserted, "");
  EXPECT_EQ(complete_line("/save /nonexistent/").inserted, "");
  EXPECT_EQ(complete_line("/load " + folder.path().string() + "/fi").inserted, "rst one.json");
}

}  // namespace
}  // namespace heddle
