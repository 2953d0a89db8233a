#include "end_to_end/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

[[noreturn]] void become_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options, int out,
                                int err) {
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(options.stdout_file.empty() ? out : ::open(options.stdout_file.c_str(), O_WRONLY), STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> argv{const_cast<char*>(HEDDLE_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(HEDDLE_PROGRAM, argv.data());
  ::_exit(127);
}

}  // namespace

ProgramResult run_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  Pipe out;
  Pipe err;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become_heddle(arguments, options, out.ends[1], err.ends[1]);
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

std::filesystem::path demo_model() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "assets/demo-llama";
}
std::filesystem::path test_data() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data";
}

}  // namespace heddle
