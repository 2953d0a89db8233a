// A temporary folder for one test, filled with small files.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include "temporary_folder.h"

namespace heddle {

class TestFolder : public TemporaryFolder {
 public:
  // Writes a file below the folder, and creates its parent folders.
  void write(std::string_view name, std::string_view text) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
  }
};

}  // namespace heddle
