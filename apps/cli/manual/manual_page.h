// Man pages, in the macros of man(7).
#pragma once

#include <string>

#include "cli/manual/command_text.h"

namespace heddle {

// The page of one command, whose name on disk is page_name() + ".1". Ends with references to those above and below.
std::string manual_page(const CommandText& command, std::string_view version);

// "heddle-bench-decode"
std::string page_name(const CommandText& command);

}  // namespace heddle
