// The C++ and CUDA sources of a checkout, with their includes.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::architecture {

struct Include {
  int line = 0;
  std::string text;  // as written, with its quotes or brackets; "" when the line cannot be parsed
  std::string name;  // without them
  bool quoted = false;
  std::string target;  // the included file of ours, relative to the root; empty: a library's header
};

// Path relative to the root, with '/', to the includes of that file.
using SourceTree = std::map<std::string, std::vector<Include>>;

// Reads every .h, .cuh, .cpp and .cu below src, apps, tests, bench and tools. An include is looked up beside the file,
// then in src, then in apps and bench for files of those and in tests for tests; CMake generates x.h from x.h.in.
SourceTree read_sources(const std::filesystem::path& root);

// The includes in one text, without targets. Ignores comments.
std::vector<Include> read_includes(std::string_view text);

// The folder of a file: "src/text/tokenizer/bpe.cpp" -> "text/tokenizer"; "apps" for all of apps; empty outside of src
// and apps.
std::string folder_of(const std::string& path);

}  // namespace heddle::architecture
