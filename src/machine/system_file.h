// The text files of /proc and /sys: they do not report a size, and any of them may be missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// The file's first megabyte; empty when it cannot be read.
std::string read_system_file(const std::filesystem::path& path);

// The value of the line "key : value" or "key: value"; empty when there is none. The first such line counts.
std::string_view line_value(std::string_view text, std::string_view key);

// `text` as an integer; white space around it is ignored.
std::optional<std::int64_t> whole_number(std::string_view text);

// Removes the white space around the text.
std::string_view trim(std::string_view text);

}  // namespace heddle
