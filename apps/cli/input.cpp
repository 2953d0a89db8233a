#include "cli/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace heddle {
namespace {

// Reads a pipe, a terminal or another device to its end.
std::string read_to_end(int descriptor, const std::string& where, std::size_t max_bytes) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error<Failure>("{}: cannot read: {}", where, std::strerror(errno));
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > max_bytes)
      throw_error<InputError>("{}: has more than {} bytes (max_file_bytes)", where, max_bytes);
  }
}

// A file whose size is known only when it has been read: a FIFO, or /dev/fd/63 of a process substitution.
bool is_stream(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode));
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& file) : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw_error<InputError>("{}: cannot open: {}", file, std::strerror(errno));
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(descriptor_); }

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

InputText read_input(const std::string& file, std::size_t max_bytes) {
  if (file == "-") {
    const std::string where = "standard input";
    return {.text = read_to_end(STDIN_FILENO, where, max_bytes), .where = where};
  }
  if (!is_stream(file)) return {.text = read_file(file, max_bytes), .where = file};
  return {.text = read_to_end(OpenFile(file).descriptor(), file, max_bytes), .where = file};
}

}  // namespace heddle
