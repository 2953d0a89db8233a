// Standard output of the commands: results only.
#pragma once

#include <string_view>

namespace heddle {

// Writes and flushes all of `text`. Throws Failure when writing fails (a full disk), and Interrupted (commands.h) when
// nobody reads it any more, as in `heddle ... | head -1`: the program then ends without a message.
void write_stdout(std::string_view text);

// Writes a message for the user. Ignores a closed standard error.
void write_stderr(std::string_view text);

// Whether colours and other escape sequences may be written there: to a terminal that is not TERM=dumb, unless NO_COLOR
// is set and not empty (https://no-color.org).
bool takes_escapes(int descriptor);

}  // namespace heddle
