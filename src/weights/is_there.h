// Looks for files of a model's folder.
#pragma once

#include <filesystem>
#include <system_error>

namespace heddle {

// Whether it exists, as far as the file system tells: what may not be looked at counts as there, and opening it says why.
inline bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

}  // namespace heddle
