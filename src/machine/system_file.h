// The text files of /proc and /sys: they have no size that could be asked for, and any of them may be missing.
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

// `text`, up to white space around it, as a whole number.
std::optional<std::int64_t> whole_number(std::string_view text);

// Without the white space around it.
std::string_view trim(std::string_view text);

}  // namespace heddle
