// Runs a target once over each file of its corpus: what the fuzzer found must stay fixed. Exits 1 after a finding.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace fs = std::filesystem;

namespace {

// As it is: read_file() refuses what stands for another file.
std::string bytes_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const heddle::fuzz::Target* target = argc < 3 ? nullptr : heddle::fuzz::find_target(argv[1]);
  if (target == nullptr) {
    std::fputs("Usage: fuzz_replay TARGET (FILE | FOLDER)...\n", stderr);
    return 2;
  }
  std::vector<fs::path> files;
  for (int i = 2; i < argc; ++i) {
    if (!fs::is_directory(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::ranges::sort(files);

  int failed = 0;
  for (const fs::path& file : files) {
    try {
      target->run(bytes_of_file(file));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", file.c_str(), error.what());
      ++failed;
    }
  }
  std::printf("%s: %zu inputs, %d failed\n", argv[1], files.size(), failed);
  return failed == 0 && !files.empty() ? 0 : 1;
}
