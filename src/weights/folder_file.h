// Files of a model's folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;  // of config.json and its like

// Also true when the file system gives no answer; opening the file then reports the reason.
inline bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

// The names in a folder, sorted; none if it cannot be read.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace heddle
