// docs/wafer.md shows commands and what they print: each line of it that follows a command must be printed by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "end_to_end/program.h"

namespace heddle {
namespace {

struct Shown {
  std::string command;
  std::vector<std::string> lines;
};

// Commands in code blocks ("    $ heddle ..."), each with the lines of the block that follow it.
std::vector<Shown> shown_commands(const std::string& page) {
  std::vector<Shown> all;
  std::istringstream lines(page);
  bool in_block = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("    $ heddle ")) {
      all.push_back({.command = line.substr(std::string("    $ heddle ").size()), .lines = {}});
      in_block = true;
    } else if (!line.starts_with("    ")) {
      in_block = false;
    } else if (in_block) {
      all.back().lines.push_back(line);
    }
  }
  return all;
}

// At blanks, but not within "...".
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  bool quoted = false, in_word = false;
  for (const char c : text) {
    if (c == ' ' && !quoted) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"')
      quoted = !quoted;
    else
      words.back() += c;
  }
  return words;
}

// The page's columns are narrower than the program's.
std::string with_single_blanks(const std::string& line) {
  std::istringstream words(line);
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string page() {
  return read_file(std::string(HEDDLE_SOURCE_DIR) + "/docs/wafer.md", 1 << 20);
}

TEST(WaferPage, ListsEveryConstant) {
  const ProgramResult result = run_heddle({"wafer", "gemv", "--n", "64", "--mesh", "8", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json object = nlohmann::json::parse(result.out);
  EXPECT_GT(object["constants"].size(), 10u);
  for (const auto& [name, value] : object["constants"].items())
    EXPECT_THAT(page(), testing::HasSubstr("`" + name + "`"));
}

TEST(WaferPage, ShowsWhatTheCommandsPrint) {
  const std::vector<Shown> commands = shown_commands(page());
  int compared = 0;
  for (const Shown& shown : commands) {
    if (shown.command.find("...") != std::string::npos) continue;  // it needs files
    std::vector<std::string> arguments = words_of(shown.command);
    for (std::string& argument : arguments)
      if (argument == "assets/demo-llama") argument = demo_model().string();
    const ProgramResult result = run_heddle(arguments);
    std::vector<std::string> printed;
    std::istringstream lines(result.out + result.err);
    for (std::string line; std::getline(lines, line);) printed.push_back(with_single_blanks(line));
    for (const std::string& line : shown.lines) {
      std::string expected = with_single_blanks(line);
      if (expected == "...") continue;
      const bool is_cut = expected.ends_with("...");
      if (is_cut) expected.resize(expected.size() - 3);
      const bool is_there = std::ranges::any_of(
          printed, [&](const std::string& other) { return is_cut ? other.starts_with(expected) : other == expected; });
      EXPECT_TRUE(is_there) << "heddle " << shown.command << " does not print: " << expected;
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace heddle
