// What Tab does in a chat: it completes commands, and file names behind /save.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct LineCompletion {
  std::string inserted;              // behind the cursor
  std::vector<std::string> choices;  // of which none is chosen yet; empty: one is, or there is nothing to choose
};

// `line`: what stands before the cursor.
LineCompletion complete_line(std::string_view line);

}  // namespace heddle
