// Builds safetensors files for tests: well-formed ones, and any header followed by any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

inline std::string little_endian(std::uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// A file with this header followed by `data`, whether or not they match.
inline std::string safetensors_file(std::string_view header, std::string_view data = "") {
  return little_endian(header.size()) + std::string(header) + std::string(data);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The message of the Error that `function` throws; empty when it throws nothing.
template <class Error, class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace heddle
