// What a message may quote of a file or a stranger.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// One line of UTF-8 that a terminal can show: control characters escaped (a terminal obeys them), ill-formed UTF-8
// replaced, cut to about `max_bytes`.
std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace heddle
