#include "fabric/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <stdexcept>

namespace heddle {
namespace {

std::string rest_of(int file) {
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t got; (got = read(file, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(got));
  return text;
}

}  // namespace

RankProcesses::RankProcesses(int world_size) : world_size_(world_size) {
  static std::atomic<int> jobs = 0;
  job_key_ = fmt::format("test-{}-{}", getpid(), jobs++);
}

RankProcesses::~RankProcesses() {
  while (!processes_.empty()) {
    kill(processes_.begin()->first, SIGKILL);
    end(processes_.begin()->first);
  }
}

pid_t RankProcesses::start(int rank, const std::vector<std::string>& command, int world_size) {
  const int size = world_size == 0 ? world_size_ : world_size;
  std::vector<std::string> variables{
      fmt::format("OMPI_COMM_WORLD_RANK={}", rank), fmt::format("OMPI_COMM_WORLD_SIZE={}", size),
      fmt::format("OMPI_COMM_WORLD_LOCAL_RANK={}", rank), fmt::format("OMPI_COMM_WORLD_LOCAL_SIZE={}", size),
      fmt::format("PMIX_NAMESPACE={}", job_key_)};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int output[2];
  int error[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
  pid_t process = 0;
  const int failed = posix_spawn(&process, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  close(error[1]);
  if (failed != 0) throw std::runtime_error("cannot start " + command[0]);
  processes_[process] = {.output = output[0], .error = error[0], .read = {}};
  return process;
}

void RankProcesses::wait_for_line(pid_t process) {
  Process& ours = processes_.at(process);
  char letter = 0;
  while (letter != '\n' && read(ours.output, &letter, 1) == 1) ours.read += letter;
}

RankProcesses::End RankProcesses::end(pid_t process) {
  Process& ours = processes_.at(process);
  End result;
  result.error = rest_of(ours.error);
  result.output = ours.read + rest_of(ours.output);
  close(ours.error);
  close(ours.output);
  int status = 0;
  waitpid(process, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  processes_.erase(process);
  return result;
}

}  // namespace heddle
