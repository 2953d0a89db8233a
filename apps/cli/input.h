// Reads files that a user names; "-" is standard input.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct InputText {
  std::string text;
  std::string where;  // the file's name or "standard input", to begin a message with
};

// Reads everything. FIFOs, the pipes of process substitutions and devices are read to their end; opening a FIFO waits
// for its writer. Throws as read_file does; InputError when there are more than `max_bytes`.
InputText read_input(const std::string& file, std::size_t max_bytes);

// The file, or without one what was piped in. Throws CLI's error of a missing option, which says that `required` is
// missing, where there is no file and standard input is a terminal or empty; otherwise as read_input does.
InputText given_input(const std::optional<std::string>& file, std::size_t max_bytes, const std::string& required);

inline constexpr const char* kTextRequired = "--text, --file or a text on standard input";

// Whether what the file holds comes bit by bit: a FIFO, the pipe of a process substitution, a terminal or another device.
bool is_stream(const std::string& file);

// The lines of such a file as they come.
class LineStream {
 public:
  // Opens the file; of a FIFO that waits for its writer. Throws InputError if it cannot be opened.
  explicit LineStream(const std::string& file);
  LineStream(const LineStream&) = delete;
  LineStream& operator=(const LineStream&) = delete;
  ~LineStream();

  // Waits until lines have come, the stream ends, a signal interrupts or `timeout` has passed; then at most 64 KiB of
  // whole lines without their ends, in order. What has no line end is a line once the stream has ended. Throws InputError
  // for a line of more than `max_line_bytes`, Failure if reading fails.
  std::vector<std::string> take(std::chrono::milliseconds timeout, std::size_t max_line_bytes);

  bool ended() const { return ended_; }
  const std::string& where() const { return where_; }

 private:
  int descriptor_;
  std::string where_;
  std::string begun_;  // a line whose end has not come
  bool ended_ = false;
};

}  // namespace heddle
