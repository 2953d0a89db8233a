// Text from files and users, made safe to quote in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// One line of UTF-8 for a terminal: escapes control characters (a terminal obeys them), replaces ill-formed UTF-8, and
// shortens to about `max_bytes`.
std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace heddle
