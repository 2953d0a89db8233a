// Files of a model's folder.
#pragma once

#include <cstddef>
#include <filesystem>

namespace heddle {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;  // of config.json and its like

// Also true when the file system gives no answer; opening the file then reports the reason.
inline bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

}  // namespace heddle
