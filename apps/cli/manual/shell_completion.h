// Completion scripts of shells.
#pragma once

#include <string>

#include "cli/manual/command_text.h"

namespace heddle {

// Each completes commands, options, the values of options that have a fixed set, and else the names of files.
std::string bash_completion(const CommandText& program);
std::string zsh_completion(const CommandText& program);
std::string fish_completion(const CommandText& program);

}  // namespace heddle
