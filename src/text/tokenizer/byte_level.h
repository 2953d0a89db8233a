// GPT-2's alphabet: each of the 256 bytes is written as one printable character, so that any text is a string of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// The character, in UTF-8, that stands for `byte`.
std::string_view byte_level_char(unsigned char byte);

// Each byte of `bytes` as its character.
std::string to_byte_level(std::string_view bytes);

// The bytes that a string of such characters stands for; nothing when another character is among them.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace heddle
