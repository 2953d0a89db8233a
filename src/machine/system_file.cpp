#include "machine/system_file.h"

#include <charconv>
#include <fstream>

namespace heddle {

std::string read_system_file(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = 1 << 20, kPart = 1 << 12;  // most files have less than a part
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::size_t read = 0;
  while (file && read < kMostBytes) {
    text.resize(read + kPart);
    file.read(text.data() + read, kPart);
    read += static_cast<std::size_t>(file.gcount());
  }
  text.resize(read);
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string_view line_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? text.size() : line.size() + 1);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key) return trim(line.substr(colon + 1));
  }
  return {};
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  text = trim(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace heddle
