#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace heddle {

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string_view shown = text.substr(0, max_bytes);
  while (shown.size() < text.size() && !shown.empty() && (text[shown.size()] & 0xC0) == 0x80) shown.remove_suffix(1);
  std::string result;
  if (std::ranges::all_of(shown, [](char c) { return c >= 0x20 && c < 0x7F; })) {
    result = shown;
  } else {
    const std::string escaped = nlohmann::json(shown).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (std::size_t i = 1; i + 1 < escaped.size(); ++i) {
      const unsigned char byte = escaped[i], next = escaped[i + 1];  // at the end: the quotation mark
      if (byte == '\\' && (next == '"' || next == '\\')) {
        result += static_cast<char>(next);
        ++i;
      } else if (byte == 0x7F) {
        result += "\\u007f";
      } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
        result += fmt::format("\\u{:04x}", next);
        ++i;
      } else {
        result += static_cast<char>(byte);
      }
    }
  }
  if (shown.size() < text.size()) result += "...";
  return result;
}

}  // namespace heddle
