// The files of the page as the program holds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "server/page.h"

namespace heddle::server {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(PageFiles, AreTheFilesOfTheFolderByteForByte) {
  const std::filesystem::path folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "apps/web";
  std::set<std::string> paths;
  for (const PageFile& file : page_files()) {
    paths.emplace(file.path);
    EXPECT_EQ(file.bytes, text_of(folder / (file.path == "/" ? "index.html" : file.path.substr(1)))) << file.path;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".js") || name.ends_with(".css")) {
      EXPECT_TRUE(paths.contains("/" + name)) << name << " is not in embed.cmake";
    }
  }
  EXPECT_TRUE(paths.contains("/"));
}

// The server's policy forbids inline scripts and styles, and the page must work without a network.
TEST(PageFiles, HaveNothingInlineAndFetchNothingFromElsewhere) {
  const std::regex inline_code(R"(<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:|innerHTML|eval\()");
  const std::regex elsewhere(R"((?:src|href)=["'](?:https?:)?//|import[^;]*from ["']https?:|url\()");
  for (const PageFile& file : page_files()) {
    const std::string text(file.bytes);
    EXPECT_FALSE(std::regex_search(text, inline_code)) << file.path;
    EXPECT_FALSE(std::regex_search(text, elsewhere)) << file.path;
  }
}

TEST(PageFiles, HaveTypes) {
  for (const PageFile& file : page_files())
    EXPECT_EQ(file.content_type, file.path == "/"              ? "text/html; charset=utf-8"
                                 : file.path.ends_with(".css") ? "text/css; charset=utf-8"
                                                               : "text/javascript; charset=utf-8")
        << file.path;
}

}  // namespace
}  // namespace heddle::server
