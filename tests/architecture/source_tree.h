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
  std::string text;  // as written, with its quotes or brackets; "" when no header can be read off the line
  std::string name;  // without them
  bool quoted = false;
  std::string target;  // the file of ours that is meant, relative to the root; empty: none, a library's header
};

// Path relative to the root, with '/', to the includes of that file.
using SourceTree = std::map<std::string, std::vector<Include>>;

// Reads every .h, .cuh, .cpp and .cu below src, apps, tests, bench and tools. An include is looked up beside the file,
// then in src, then in apps and bench for files of those and in tests for tests; x.h.in is what CMake makes x.h of.
SourceTree read_sources(const std::filesystem::path& root);

// The includes of one text, without targets. Those in comments do not count.
std::vector<Include> read_includes(std::string_view text);

// The folder of a file: "src/text/tokenizer/bpe.cpp" -> "text/tokenizer"; "apps" for all of apps; empty outside of src and
// apps.
std::string folder_of(const std::string& path);

}  // namespace heddle::architecture
