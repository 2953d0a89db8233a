#include "cli/input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace heddle {

InputText read_input(const std::string& file, std::size_t max_bytes) {
  if (file != "-") return {.text = read_file(file, max_bytes), .where = file};
  InputText input{.text = {}, .where = "standard input"};
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count == 0) return input;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error<Failure>("{}: cannot read: {}", input.where, std::strerror(errno));
    input.text.append(buffer.data(), static_cast<std::size_t>(count));
    if (input.text.size() > max_bytes)
      throw_error<InputError>("{}: has more than {} bytes (max_file_bytes)", input.where, max_bytes);
  }
}

}  // namespace heddle
