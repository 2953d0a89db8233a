#include "cli/input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/Error.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

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

bool is_stream(const std::string& file) {
  struct stat status {};
  const int failed = file == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(file.c_str(), &status);
  return failed == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode));
}

LineStream::LineStream(const std::string& file)
    : descriptor_(file == "-" ? STDIN_FILENO : ::open(file.c_str(), O_RDONLY | O_CLOEXEC)),
      where_(file == "-" ? "standard input" : file) {
  if (descriptor_ < 0) throw_error<InputError>("{}: cannot open: {}", file, std::strerror(errno));
}

LineStream::~LineStream() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

std::vector<std::string> LineStream::take(std::chrono::milliseconds timeout, std::size_t max_line_bytes) {
  std::vector<std::string> lines;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!ended_ && lines.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd source{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&source, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return lines;
    std::array<char, 65536> buffer;
    const ssize_t count = ready < 0 ? -1 : ::read(descriptor_, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return lines;
    if (count < 0) throw_error<Failure>("{}: cannot read: {}", where_, std::strerror(errno));
    if (count == 0) {
      ended_ = true;
      if (!begun_.empty()) lines.push_back(std::exchange(begun_, {}));
      return lines;
    }
    std::string_view piece(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t end; (end = piece.find('\n')) != std::string_view::npos; piece.remove_prefix(end + 1)) {
      begun_.append(piece.substr(0, end));
      lines.push_back(std::exchange(begun_, {}));
    }
    begun_.append(piece);
    if (begun_.size() > max_line_bytes)
      throw_error<InputError>("{}: a line of more than {} bytes (max_line_bytes)", where_, max_line_bytes);
  }
  return lines;
}

InputText read_input(const std::string& file, std::size_t max_bytes) {
  if (file == "-") {
    const std::string where = "standard input";
    return {.text = read_to_end(STDIN_FILENO, where, max_bytes), .where = where};
  }
  if (!is_stream(file)) return {.text = read_file(file, max_bytes), .where = file};
  return {.text = read_to_end(OpenFile(file).descriptor(), file, max_bytes), .where = file};
}

InputText given_input(const std::optional<std::string>& file, std::size_t max_bytes, const std::string& required) {
  if (file) return read_input(*file, max_bytes);
  InputText input;
  if (::isatty(STDIN_FILENO) != 1) input = read_input("-", max_bytes);
  if (input.text.empty()) throw CLI::RequiredError(required);
  return input;
}

}  // namespace heddle
