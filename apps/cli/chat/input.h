// Input of a chat: messages of one or several lines, from a terminal with editing and history, or from a pipe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace heddle {

// A source of lines.
class LineSource {
 public:
  enum class Prompt : std::uint8_t { message, continuation };
  struct Cleared {};  // thrown when Ctrl-C cleared what was being typed

  virtual ~LineSource() = default;

  // The next line without its end; nothing at the end of input. Throws Interrupted (cli/commands.h) when a signal ends
  // the program, InputError for a line above 64 MiB.
  virtual std::optional<std::string> line(Prompt prompt) = 0;
};

// Standard input. A terminal gets prompts, editing and a history, which is stored in the user's state folder
// ($XDG_STATE_HOME or ~/.local/state, heddle/chat_history, readable by the user only). `interrupt` must outlive it; it
// is rearmed when Ctrl-C cleared a line. `while_waiting` is called four times a second while nobody types; what it throws
// ends line().
std::unique_ptr<LineSource> open_standard_input(InterruptGuard& interrupt, std::function<void()> while_waiting);

// One message of the user.
struct UserMessage {
  std::string text;
  bool literal = false;  // given in quotes: never a command
};

// Reads a message: one line; lines joined where one ends with a backslash; or the text between """ and """, over
// several lines. Nothing at the end of input.
std::optional<UserMessage> read_message(LineSource& source);

}  // namespace heddle
