#include "architecture/source_tree.h"

#include <algorithm>
#include <array>
#include <fstream>

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kTops{"src", "apps", "tests", "bench", "tools"};

bool is_source(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".h" || extension == ".cuh" || extension == ".cpp" || extension == ".cu";
}

std::string read_text(const fs::path& path) {
  std::string text(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

// `line` without comments; `in_comment` tells whether a /* of an earlier line is still open.
std::string strip_comments(std::string_view line, bool& in_comment) {
  std::string code;
  while (!line.empty()) {
    if (in_comment) {
      const std::size_t end = line.find("*/");
      if (end == std::string_view::npos) return code;
      line.remove_prefix(end + 2);
      in_comment = false;
    } else if (line.starts_with("//")) {
      return code;
    } else if (line.starts_with("/*")) {
      line.remove_prefix(2);
      in_comment = true;
    } else if (line.front() == '"') {  // a string may contain what looks like a comment
      std::size_t end = 1;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      code += line.substr(0, end + 1);
      line.remove_prefix(std::min(line.size(), end + 1));
    } else {
      const std::size_t plain = std::min(line.find_first_of("/\"", 1), line.size());
      code += line.substr(0, plain);
      line.remove_prefix(plain);
    }
  }
  return code;
}

std::string_view skip_space(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

// The included file, relative to the root; empty if it is not a file of ours.
std::string resolve(const fs::path& root, const std::string& includer, const Include& include) {
  const std::string top = includer.substr(0, includer.find('/'));
  std::vector<fs::path> folders;
  if (include.quoted) folders.push_back(fs::path(includer).parent_path());
  folders.emplace_back("src");
  folders.emplace_back(top);
  if (top != "src") folders.emplace_back("apps");
  for (const fs::path& folder : folders) {
    const fs::path candidate = (folder / include.name).lexically_normal();
    for (const char* form : {"", ".in"})  // CMake generates x.h from x.h.in
      if (fs::is_regular_file(root / (candidate.generic_string() + form))) return candidate.generic_string() + form;
  }
  return {};
}

}  // namespace

std::vector<Include> read_includes(std::string_view text) {
  std::vector<Include> includes;
  bool in_comment = false;
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view raw = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), raw.size() + 1));
    const std::string code = strip_comments(raw, in_comment);
    std::string_view rest = skip_space(code);
    if (!rest.starts_with('#')) continue;
    rest = skip_space(rest.substr(1));
    if (!rest.starts_with("include")) continue;
    rest = skip_space(rest.substr(std::string_view("include").size()));
    Include include{.line = line};
    const char close = rest.starts_with('"') ? '"' : '>';
    const std::size_t end = rest.find(close, 1);
    if ((rest.starts_with('"') || rest.starts_with('<')) && end != std::string_view::npos) {
      include.text = rest.substr(0, end + 1);
      include.name = rest.substr(1, end - 1);
      include.quoted = close == '"';
    }
    includes.push_back(include);
  }
  return includes;
}

SourceTree read_sources(const fs::path& root) {
  SourceTree tree;
  for (const std::string_view top : kTops) {
    if (!fs::is_directory(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string path = entry.path().lexically_relative(root).generic_string();
      std::vector<Include> includes = read_includes(read_text(entry.path()));
      for (Include& include : includes) include.target = resolve(root, path, include);
      tree.emplace(path, std::move(includes));
    }
  }
  return tree;
}

std::string folder_of(const std::string& path) {
  if (path.starts_with("apps/")) return "apps";
  if (!path.starts_with("src/")) return {};
  const std::size_t start = std::string_view("src/").size();
  const std::size_t end = path.rfind('/');
  return end < start ? std::string() : path.substr(start, end - start);
}

}  // namespace heddle::architecture
