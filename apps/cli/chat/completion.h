// Tab completion in a chat: commands, and file names after /save.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct LineCompletion {
  std::string inserted;              // behind the cursor
  std::vector<std::string> choices;  // the remaining candidates; empty: one was chosen, or there are none
};

// "/exit", "/help" and so on.
std::vector<std::string> chat_commands();

// `line`: the text before the cursor.
LineCompletion complete_line(std::string_view line);

}  // namespace heddle
