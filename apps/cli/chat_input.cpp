#include "cli/chat_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/chat_terminal.h"
#include "cli/commands.h"
#include "cli/interrupt.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;
constexpr std::string_view kQuotes = "\"\"\"";

class PipeInput : public LineSource {
 public:
  explicit PipeInput(const InterruptGuard& interrupt) : interrupt_(interrupt) {}

  std::optional<std::string> line(Prompt) override {
    std::size_t searched = 0;
    for (;;) {
      if (const std::size_t end = held_.find('\n', searched); end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return without_return(std::move(line));
      }
      if (held_.size() > kMaxMessageBytes)
        throw_error<InputError>("standard input: a line is longer than {} bytes (max_line_bytes)", kMaxMessageBytes);
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

  bool read_more() {
    std::array<char, 65536> buffer;
    const ssize_t count = interrupt_.read(STDIN_FILENO, buffer);
    if (interrupt_.interrupted()) throw Interrupted{interrupt_.signal()};
    if (count < 0) throw_error<Failure>("standard input: cannot read: {}", std::strerror(errno));
    held_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  const InterruptGuard& interrupt_;
  std::string held_;
};

// From behind the opening quotes to the closing ones, which end a line; the line ends beside the quotes are left out.
std::string read_block(std::string line, LineSource& source) {
  std::string text;
  for (bool first = true;; first = false) {
    const bool ends = line.ends_with(kQuotes);
    if (ends) line.resize(line.size() - kQuotes.size());
    if (text.size() + line.size() > kMaxMessageBytes)
      throw_error<InputError>("standard input: a message is longer than {} bytes (max_message_bytes)",
                              kMaxMessageBytes);
    const bool beside_quotes = line.empty() && (first || ends);
    if (!text.empty() && !beside_quotes) text += '\n';
    text += line;
    if (ends) return text;
    auto next = source.line(LineSource::Prompt::continuation);
    if (!next) return text;
    line = std::move(*next);
  }
}

}  // namespace

std::unique_ptr<LineSource> open_standard_input(InterruptGuard& interrupt) {
  if (::isatty(STDIN_FILENO) != 0) return open_terminal(interrupt);
  return std::make_unique<PipeInput>(interrupt);
}

std::optional<UserMessage> read_message(LineSource& source) {
  auto line = source.line(LineSource::Prompt::message);
  if (!line) return std::nullopt;
  if (line->starts_with(kQuotes)) return UserMessage{.text = read_block(line->substr(3), source), .literal = true};
  std::string text = std::move(*line);
  while (text.ends_with('\\')) {
    text.back() = '\n';
    auto next = source.line(LineSource::Prompt::continuation);
    if (!next) {
      text.pop_back();
      break;
    }
    if (text.size() + next->size() > kMaxMessageBytes)
      throw_error<InputError>("standard input: a message is longer than {} bytes (max_message_bytes)",
                              kMaxMessageBytes);
    text += *next;
  }
  return UserMessage{.text = std::move(text)};
}

}  // namespace heddle
