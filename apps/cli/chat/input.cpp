#include "cli/chat/input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/chat/terminal.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;
constexpr std::string_view kQuotes = "\"\"\"";

class PipeInput : public LineSource {
 public:
  PipeInput(const InterruptGuard& interrupt, std::function<void()> while_waiting)
      : interrupt_(interrupt), while_waiting_(std::move(while_waiting)) {}

  std::optional<std::string> line(Prompt) override {
    std::size_t searched = 0;
    for (;;) {
      if (const std::size_t end = held_.find('\n', searched); end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return without_return(std::move(line));
      }
      if (held_.size() > kMaxMessageBytes) {
        skip_line();  // otherwise it would be found again, and be too long again
        throw_error<InputError>("standard input: a line is longer than {} bytes (max_line_bytes)", kMaxMessageBytes);
      }
      searched = held_.size();
      if (!read_more()) break;
    }
    if (held_.empty()) return std::nullopt;
    return without_return(std::exchange(held_, {}));
  }

 private:
  static std::string without_return(std::string line) {
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  void skip_line() {
    std::size_t end = 0;
    do {
      held_.clear();
      if (!read_more()) return;
      end = held_.find('\n');
    } while (end == std::string::npos);
    held_.erase(0, end + 1);
  }

  bool read_more() {
    std::array<char, 65536> buffer;
    const ssize_t count = interrupt_.read(STDIN_FILENO, buffer, while_waiting_);
    if (interrupt_.interrupted()) throw Interrupted{interrupt_.signal()};
    if (count < 0) throw_error<Failure>("standard input: cannot read: {}", std::strerror(errno));
    held_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  const InterruptGuard& interrupt_;
  std::function<void()> while_waiting_;
  std::string held_;
};

// A terminal without line editing (TERM=dumb): prompts and plain lines.
class DumbTerminal : public PipeInput {
 public:
  DumbTerminal(InterruptGuard& interrupt, std::function<void()> while_waiting)
      : PipeInput(interrupt, std::move(while_waiting)), interrupt_(interrupt) {}

  std::optional<std::string> line(Prompt prompt) override {
    write_stdout(prompt == Prompt::continuation ? "... " : "> ");
    try {
      return PipeInput::line(prompt);
    } catch (const Interrupted& interrupted) {
      if (interrupted.signal != SIGINT) throw;
      interrupt_.rearm();
      throw Cleared{};
    }
  }

 private:
  InterruptGuard& interrupt_;
};

// A message of several lines. One that is too long is still read to its end: the rest would become other messages.
class LongText {
 public:
  void add(std::string_view separator, std::string_view line) {
    is_too_long_ = is_too_long_ || text_.size() + separator.size() + line.size() > kMaxMessageBytes;
    if (is_too_long_) return;
    text_ += separator;
    text_ += line;
  }
  bool empty() const { return text_.empty(); }
  std::string take() {
    if (is_too_long_)
      throw_error<InputError>("standard input: a message is longer than {} bytes (max_message_bytes)",
                              kMaxMessageBytes);
    return std::move(text_);
  }

 private:
  std::string text_;
  bool is_too_long_ = false;
};

// The text between the opening quotes and the closing ones at the end of a line, without the line ends next to the
// quotes.
std::string read_block(std::string line, LineSource& source) {
  LongText text;
  for (bool first = true;; first = false) {
    const bool ends = line.ends_with(kQuotes);
    if (ends) line.resize(line.size() - kQuotes.size());
    const bool beside_quotes = line.empty() && (first || ends);
    text.add(text.empty() || beside_quotes ? "" : "\n", line);
    if (ends) return text.take();
    auto next = source.line(LineSource::Prompt::continuation);
    if (!next) return text.take();
    line = std::move(*next);
  }
}

}  // namespace

std::unique_ptr<LineSource> open_standard_input(InterruptGuard& interrupt, std::function<void()> while_waiting) {
  const char* terminal = std::getenv("TERM");
  if (::isatty(STDIN_FILENO) == 0) return std::make_unique<PipeInput>(interrupt, std::move(while_waiting));
  if (terminal != nullptr && std::string_view(terminal) == "dumb")
    return std::make_unique<DumbTerminal>(interrupt, std::move(while_waiting));
  return open_terminal(interrupt, std::move(while_waiting));
}

std::optional<UserMessage> read_message(LineSource& source) {
  auto line = source.line(LineSource::Prompt::message);
  if (!line) return std::nullopt;
  if (line->starts_with(kQuotes)) return UserMessage{.text = read_block(line->substr(3), source), .literal = true};
  LongText text;
  std::string_view separator;
  while (line && line->ends_with('\\')) {
    line->pop_back();
    text.add(separator, *line);
    separator = "\n";
    line = source.line(LineSource::Prompt::continuation);
  }
  if (line) text.add(separator, *line);
  return UserMessage{.text = text.take()};
}

}  // namespace heddle
