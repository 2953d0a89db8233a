// A folder for one test that is filled as a tree of small files.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include "temporary_folder.h"

namespace heddle {

class TestFolder : public TemporaryFolder {
 public:
  // Writes a file below the folder, and the folders on the way to it.
  void write(std::string_view name, std::string_view text) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
  }
};

}  // namespace heddle
