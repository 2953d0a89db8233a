// UTF-8: validation, repair, and white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// The first character of a text, or the bytes at its start that belong to no character.
struct Utf8Char {
  static constexpr char32_t kIllFormed = 0xFFFFFFFF;
  // kIllFormed: the `length` bytes are the longest prefix of a character, and it does not continue.
  char32_t code_point;
  std::uint32_t length;
  bool cut_off;  // ill-formed only because the text ends here
};

// `text` is not empty.
Utf8Char first_char(std::string_view text);

// Offset of the first byte that belongs to no character.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Each ill-formed part (in the sense of Unicode's "maximal subpart") becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// The number of bytes at the end of `text` that further bytes could complete to a character; 0..3.
std::size_t cut_off_bytes(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

bool is_space(char32_t code_point);  // White_Space

// `text` is valid and not empty.
char32_t last_char(std::string_view text);

// The end of the white space that begins at `begin`; the start of the white space that ends at `end`, not before
// `least`.
std::size_t skip_space(std::string_view text, std::size_t begin);
std::size_t skip_space_back(std::string_view text, std::size_t end, std::size_t least);

}  // namespace heddle
