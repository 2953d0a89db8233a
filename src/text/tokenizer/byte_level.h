// GPT-2's alphabet: maps each of the 256 bytes to one printable character, so that any data is a string of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// The character, in UTF-8, for `byte`.
std::string_view byte_level_char(unsigned char byte);

// Encodes each byte of `bytes`.
std::string to_byte_level(std::string_view bytes);

// Decodes such characters to bytes; nothing when the text has any other character.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace heddle
