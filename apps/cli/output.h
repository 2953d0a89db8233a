// Standard output of the commands: results only.
#pragma once

#include <string_view>

namespace heddle {

// Writes and flushes all of `text`. Throws Failure when writing fails (a full disk, a closed pipe).
void write_stdout(std::string_view text);

// Writes a message for the user. Ignores a closed standard error.
void write_stderr(std::string_view text);

}  // namespace heddle
