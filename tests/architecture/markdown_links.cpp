#include "architecture/markdown_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kDocumentedFolders{"src",  "apps",    "tests", "bench", "tools",
                                                             "docs", "scripts", "cmake", "assets"};

std::vector<fs::path> markdown_files(const fs::path& root) {
  std::vector<fs::path> files;
  const auto take = [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file() && entry.path().extension() == ".md") files.push_back(entry.path());
  };
  for (const auto& entry : fs::directory_iterator(root)) take(entry);
  for (const std::string_view top : kDocumentedFolders)
    if (fs::is_directory(root / top))
      for (const auto& entry : fs::recursive_directory_iterator(root / top)) take(entry);
  std::ranges::sort(files);
  return files;
}

// The first groups of all matches.
std::vector<std::string> matches(const std::string& line, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

// Whether it names a place in the checkout, rather than an option, a fraction or a file of the user's.
bool is_path_of_ours(const fs::path& root, const std::string& text) {
  static const std::regex path("[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*/?");
  if (text.find('/') == std::string::npos || !std::regex_match(text, path)) return false;
  const std::string first = text.substr(0, text.find('/'));
  return std::ranges::find(kDocumentedFolders, first) != kDocumentedFolders.end() ||
         fs::is_directory(root / "src" / first);
}

void check_line(const fs::path& root, const fs::path& file, int number, const std::string& line, Faults& faults) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  static const std::regex code("`([^`]+)`");
  const auto fault = [&](std::string_view kind, const std::string& text) {
    faults.push_back(fmt::format("{}:{}: the {} {} leads nowhere", file.lexically_relative(root).generic_string(),
                                 number, kind, text));
  };
  const fs::path folder = file.parent_path();
  for (const std::string& target : matches(line, link)) {
    const std::string path = target.substr(0, target.find('#'));
    if (target.find("://") == std::string::npos && !path.empty() && !fs::exists(folder / path)) fault("link", target);
  }
  for (const std::string& text : matches(line, code))
    if (is_path_of_ours(root, text) && !fs::exists(root / text) && !fs::exists(root / "src" / text) &&
        !fs::exists(folder / text))
      fault("path", text);
}

}  // namespace

Faults check_markdown_links(const fs::path& root) {
  Faults faults;
  for (const fs::path& file : markdown_files(root)) {
    std::ifstream stream(file);
    bool fenced = false;
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      const bool fence = line.starts_with("```");
      fenced = fenced != fence;
      if (!fenced && !fence && !line.starts_with("    ")) check_line(root, file, number, line, faults);
    }
  }
  return faults;
}

}  // namespace heddle::architecture
