// Formats numbers and names for tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// "2 cores", "1 core".
std::string count_text(std::int64_t count, std::string_view what);

// A large count with three digits: "4.56 million"; below a thousand with all digits.
std::string magnitude_text(std::int64_t count);

// "12 bytes", "48 KiB", "4.5 MiB", "23.5 GiB".
std::string size_text(std::uint64_t size_bytes);

// Four digits and an SI prefix from p to P, in powers of 1000: "815.3 ms", "12.23 kJ"; u stands for micro.
std::string si_text(double value, std::string_view unit);

// "a", "a and b", "a, b and c".
std::string list_text(const std::vector<std::string>& names);

// Writes control characters as \n, \t, \r or \xNN: a name from a file must neither break a line nor control the
// terminal.
std::string printable_text(std::string_view text);

}  // namespace heddle
