// heddle launch: starts the ranks of a run with mpirun.
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/mpirun_command.h"
#include "cli/mpirun_words.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/supervise.h"
#include "fabric/launch.h"

namespace heddle {
namespace {

// How long a rank's end is hidden from mpirun (unless --no-recovery), because mpirun then ends all others immediately.
// The others notice a killed rank that they have met within their deadline; a failed rank has told them itself; and one
// that was killed before it has met them is named here alone.
constexpr std::chrono::seconds kAfterSignal{30};
constexpr std::chrono::seconds kAfterFailure{1};

struct Options {
  LaunchOptions launch;
  bool dry_run = false;
  bool as_rank = false;
};

// Searches like execvp; empty: not found.
std::string find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/usr/bin:/bin";
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    std::string candidate = std::string(folders.substr(0, end)) + "/" + std::string(name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return {};
}

LaunchSurroundings surroundings() {
  LaunchSurroundings here;
  here.mpirun = find_program("mpirun");
  if (here.mpirun.empty())
    throw InputError("there is no mpirun on PATH: install Open MPI (on Debian and Ubuntu the package openmpi-bin)");
  std::error_code error;
  here.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  here.root = ::geteuid() == 0;
  here.have_osc_choice = std::getenv("OMPI_MCA_osc") != nullptr || std::getenv("OMPI_MCA_btl") != nullptr;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool own = text.starts_with(std::string(kMeetingVariable) + "=");  // of a rank that starts a run of its own
    if (text.starts_with("HEDDLE_") && !own) here.heddle_variables.emplace_back(text.substr(0, text.find('=')));
  }
  return here;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// A signal handler can only access globals.
pid_t rank_process = 0;
volatile std::sig_atomic_t passed_on = 0;  // the last signal

void pass_on(int signal) {
  passed_on = signal == kInterruptRanks ? SIGINT : signal;
  if (signal == kInterruptRanks && ::getpgrp() == ::getpid()) {  // the command and what it has started, as by Ctrl-C
    std::signal(SIGINT, SIG_IGN);
    ::kill(0, SIGINT);
  } else {
    ::kill(rank_process, passed_on);
  }
}

// Runs the command and returns its exit status, with a delay if mpirun must not act on it at once. However this process
// ends, the command ends with it.
int run_as_rank(std::vector<std::string> words) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // mpirun may die without ending its ranks
  const pid_t parent = ::getpid();
  const int meeting = ::eventfd(0, EFD_NONBLOCK);
  if (meeting < 0) throw_error<Failure>("eventfd: {}", std::strerror(errno));
  // Mpirun sends it to both processes, maybe before they are ready for it.
  sigset_t interrupts, usual_mask;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, kInterruptRanks);
  ::sigprocmask(SIG_BLOCK, &interrupts, &usual_mask);
  rank_process = ::fork();
  if (rank_process < 0) throw_error<Failure>("cannot start a process: {}", std::strerror(errno));
  if (rank_process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setenv(kMeetingVariable, std::to_string(meeting).c_str(), 1);
    std::signal(SIGPIPE, SIG_DFL);
    std::signal(kInterruptRanks, SIG_IGN);
    ::sigprocmask(SIG_SETMASK, &usual_mask, nullptr);
    ::execvp(words[0].c_str(), pointers(words).data());
    const std::string line = fmt::format("heddle: error: cannot start {}: {}\n", words[0], std::strerror(errno));
    write_stderr(line);
    ::_exit(127);
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(signal, pass_on);
  ::sigprocmask(SIG_SETMASK, &usual_mask, nullptr);
  int status = 0;
  while (::waitpid(rank_process, &status, 0) < 0)
    if (errno != EINTR) throw_error<Failure>("cannot wait for {}: {}", words[0], std::strerror(errno));
  // From here on the signals have their defaults, so mpirun can end this process.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, SIG_DFL);
  std::signal(kInterruptRanks, SIG_IGN);
  if (WIFSIGNALED(status) && WTERMSIG(status) == passed_on) return 128 + passed_on;  // the run was asked to end
  if (WIFSIGNALED(status)) {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    write_stderr(fmt::format("heddle: rank {} was ended by signal {} ({})\n", rank != nullptr ? rank : "?",
                             WTERMSIG(status), strsignal(WTERMSIG(status))));
    std::uint64_t count = 0;
    const bool has_met_others = ::read(meeting, &count, sizeof count) == sizeof count;
    std::this_thread::sleep_for(has_met_others ? kAfterSignal : kAfterFailure);
    return 128 + WTERMSIG(status);
  }
  if (WEXITSTATUS(status) != 0) {
    write_stderr(kRankFailed);
    std::this_thread::sleep_for(kAfterFailure);
  }
  return WEXITSTATUS(status);
}

void run(const Options& options) {
  if (options.as_rank) std::exit(run_as_rank(options.launch.command));
  std::vector<std::string> words = mpirun_command(options.launch, surroundings());
  if (options.dry_run) {
    write_stdout(shell_line(words) + "\n");
    return;
  }
  if (const int status = supervise(std::move(words), options.launch.recovery); status != 0) throw ExitWith{status};
}

}  // namespace

void add_launch(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("launch", "Start a command as the ranks of a run, on this machine or on several");
  LaunchOptions& launch = options->launch;
  CLI::Option* ranks = add_number_option<int>(*command, "-n,--ranks", launch.num_ranks, "how many ranks to start",
                                              {.min = 1, .max = 1 << 20});
  command->add_option(
      "--hosts", launch.hosts,
      "the machines, as HOST[:RANKS],...; each must reach the others by ssh without a password and have "
      "the command at the same path");
  command->add_option("--interface", launch.interface,
                      "the network by which machines reach each other, as a name (eth0) or a range (10.0.0.0/24)");
  command->add_flag("--recovery,!--no-recovery", launch.recovery,
                    "when a rank is killed or fails, let the others name it before the run is ended (the default); "
                    "without, the run ends at once, and each rank has one process less");
  command->add_flag("--dry-run", options->dry_run, "print the command for mpirun instead of running it");
  command->add_flag("--as-rank", options->as_rank)->group("");  // added before each rank's command for recovery
  command->add_option("command", launch.command, "after --: the command, and its arguments")
      ->required()
      ->type_name("COMMAND");
  command->footer(
      "The exit status is the run's: that of the first rank that failed; 130 after Ctrl-C, which every rank gets, and "
      "which ends them all when it is pressed twice. Standard input goes to rank 0.\n"
      "Open MPI's own settings (OMPI_MCA_...) are passed on; OMPI_MCA_osc or OMPI_MCA_btl replace what several hosts "
      "get.\n"
      "Example: heddle launch -n 4 -- heddle bench collective --fabric shm");
  command->callback([options, ranks] {
    if (!options->as_rank && ranks->count() == 0) throw CLI::RequiredError("-n");
    run(*options);
  });
}

}  // namespace heddle
