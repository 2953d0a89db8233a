#include "text/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

// Printable bytes of Latin-1 map to themselves; the others map to U+0100, U+0101, ... in order.
constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t kFirstShifted = 0x100;
constexpr int kNumShifted = 68;

struct ByteTable {
  std::array<std::string, 256> char_of;
  std::array<std::int16_t, kFirstShifted + kNumShifted> byte_of;  // by code point; -1: none

  ByteTable() {
    byte_of.fill(-1);
    char32_t next = kFirstShifted;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t code_point = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      append_utf8(char_of[static_cast<std::size_t>(byte)], code_point);
      byte_of[code_point] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteTable& alphabet() {
  static const ByteTable instance;
  return instance;
}

}  // namespace

std::string_view byte_level_char(unsigned char byte) {
  return alphabet().char_of[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) text += byte_level_char(static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  const auto& byte_of = alphabet().byte_of;
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = first_char(text);
    if (c.code_point >= byte_of.size() || byte_of[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[c.code_point]));
    text.remove_prefix(c.length);
  }
  return bytes;
}

}  // namespace heddle
