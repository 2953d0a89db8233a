// Reads files that a user names; "-" is standard input.
#pragma once

#include <cstddef>
#include <string>

namespace heddle {

struct InputText {
  std::string text;
  std::string where;  // the file's name or "standard input", to begin a message with
};

// Reads everything. FIFOs, the pipes of process substitutions and devices are read to their end; opening a FIFO waits
// for its writer. Throws as read_file does; InputError when there are more than `max_bytes`.
InputText read_input(const std::string& file, std::size_t max_bytes);

}  // namespace heddle
