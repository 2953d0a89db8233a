#include "end_to_end/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace heddle {
namespace {

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

[[noreturn]] void execute(const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(HEDDLE_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(HEDDLE_PROGRAM, argv.data());
  ::_exit(127);
}

[[noreturn]] void become_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options, int in,
                                int out, int err) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(options.stdout_file.empty() ? out : ::open(options.stdout_file.c_str(), O_WRONLY), STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  execute(arguments);
}

// An unnamed file with these contents, positioned at its beginning.
int file_of(const std::string& text) {
  const int file = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("standard input cannot be prepared");
  return file;
}

}  // namespace

ProgramResult run_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  Pipe out;
  Pipe err;
  const int in = file_of(options.stdin_text);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become_heddle(arguments, options, in, out.ends[1], err.ends[1]);
  ::close(in);
  out.close_end(1);
  err.close_end(1);

  ProgramResult result;
  const auto deadline = std::chrono::steady_clock::now() + options.limit;
  pollfd sources[2] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  while (sources[0].fd >= 0 || sources[1].fd >= 0) {
    ::poll(sources, 2, 100);
    for (int i = 0; i < 2; ++i) {
      if (sources[i].fd < 0 || sources[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(sources[i].fd, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        sources[i].fd = -1;
        continue;
      }
      texts[i]->append(buffer, static_cast<std::size_t>(count));
      if (i == 0 && options.on_output) options.on_output(child, result.out);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      throw std::runtime_error("heddle did not end in time; its errors: " + result.err);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

namespace {

bool echoes(int terminal) {
  termios mode{};
  return ::tcgetattr(terminal, &mode) == 0 && (mode.c_lflag & ECHO) != 0;
}

}  // namespace

ProgramResult run_heddle_on_terminal(const std::vector<std::string>& arguments, const std::vector<Typed>& typed,
                                     std::chrono::seconds limit) {
  const winsize size{.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("forkpty failed");
  if (child == 0) execute(arguments);

  ProgramResult result;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  auto next = typed.begin();
  auto last_typed = std::chrono::steady_clock::now();
  const char* kind = ::getenv("TERM");
  const bool edits_lines = kind == nullptr || std::string_view(kind) != "dumb";
  std::size_t seen = 0;
  for (;;) {
    // A terminal swallows a Ctrl-D that arrives while it changes its mode.
    if (next == typed.end() && !typed.empty() && typed.back().text == "\x04" &&
        std::chrono::steady_clock::now() - last_typed > std::chrono::seconds(2)) {
      if (::write(terminal, "\x04", 1) < 0) break;
      last_typed = std::chrono::steady_clock::now();
    }
    if (next != typed.end()) {
      const std::size_t found = next->after.empty() ? seen + 1 : result.out.find(next->after, seen);
      // libedit shows its prompt before it turns the terminal's echo off: what is typed in between is echoed twice.
      // Without libedit the echo stays on.
      const bool settled = next->after != "> " || !edits_lines || !echoes(terminal);
      if (found <= result.out.size() && settled) {
        seen = std::min(found + next->after.size(), result.out.size());
        if (::write(terminal, next->text.data(), next->text.size()) < 0) break;
        last_typed = std::chrono::steady_clock::now();
        ++next;
      }
    }
    pollfd source{terminal, POLLIN, 0};
    ::poll(&source, 1, 10);
    char buffer[4096];
    if (source.revents != 0) {
      const ssize_t count = ::read(terminal, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;  // EIO: the program has ended
      result.out.append(buffer, static_cast<std::size_t>(count));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      break;
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::filesystem::path demo_model() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "assets/demo-llama";
}
std::filesystem::path test_data() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data";
}

}  // namespace heddle
