// The terminal's side of a chat: libedit's line editing, and a history that outlives the program.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/chat/input.h"
#include "cli/interrupt.h"

namespace heddle {

// Standard input, which is a terminal. Prompts and echo go to standard output, or to standard error where that is no
// terminal. A history that cannot be read or written is warned about once, and does without.
std::unique_ptr<LineSource> open_terminal(InterruptGuard& interrupt);

// A model's text for a terminal: control characters other than tab and line end, with which it could steer the
// terminal, become U+FFFD. `text` is of whole characters.
std::string harmless_text(std::string_view text);

}  // namespace heddle
