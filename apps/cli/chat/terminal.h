// The terminal side of a chat: libedit's line editing, and a persistent history.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/chat/input.h"
#include "cli/interrupt.h"

namespace heddle {

// Standard input, which is a terminal. Prompts and echo go to standard output, or to standard error if that is not a
// terminal. If the history cannot be read or written, it warns once and works without it.
// `while_waiting`: of open_standard_input.
std::unique_ptr<LineSource> open_terminal(InterruptGuard& interrupt, std::function<void()> while_waiting);

// Makes a model's text safe for a terminal: control characters other than tab and line end, which could control the
// terminal, become U+FFFD. `text` consists of whole characters.
std::string harmless_text(std::string_view text);

}  // namespace heddle
