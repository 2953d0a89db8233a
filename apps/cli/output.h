// Standard output of the commands: results and nothing else.
#pragma once

#include <string_view>

namespace heddle {

// Writes and flushes all of `text`. Throws Failure when standard output cannot take it (a full disk, a closed pipe).
void write_stdout(std::string_view text);

// Writes a note for the person at the terminal. A closed standard error is no error.
void write_stderr(std::string_view text);

}  // namespace heddle
