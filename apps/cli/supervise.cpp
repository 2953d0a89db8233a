#include "cli/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cli/mpirun_words.h"
#include "cli/output.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTwice{2};              // SIGINT again within: at once
constexpr std::chrono::seconds kToEndByThemselves{5};  // after SIGTERM
constexpr std::chrono::seconds kToKill{10};            // that mpirun gets for it
constexpr std::chrono::seconds kAfterFailure{15};      // that mpirun gets to end the other ranks; it waits for machines
                                                       // that are gone forever
constexpr std::chrono::seconds kToKillAfterFailure{1};
constexpr std::chrono::milliseconds kAfterTheEnd{300};  // for words that a rank's own child may still hold back
constexpr int kNapMilliseconds = 100;

struct Pipe {
  int from = -1;
  int to = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_error<Failure>("pipe: {}", std::strerror(errno));
    from = ends[0];
    to = ends[1];
  }
};

// mpirun is not in the terminal's foreground, where Ctrl-C would reach it; so it may not read there.
void pass_on_what_is_typed(int to) {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EIO && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) {  // a job in the background
      std::this_thread::sleep_for(std::chrono::milliseconds(2 * kNapMilliseconds));
      continue;
    }
    if (count <= 0) break;
    for (ssize_t done = 0; done < count;) {
      const ssize_t written = ::write(to, bytes.data() + done, static_cast<std::size_t>(count - done));
      if (written < 0 && errno != EINTR) return;
      done += std::max<ssize_t>(written, 0);
    }
  }
  ::close(to);
}

// SIGINT asks the ranks to end, where they take kInterruptRanks; a second one within two seconds, or where they do not,
// has mpirun kill them; so do SIGTERM and SIGHUP five seconds after they asked. A run of which a rank has failed, and
// which mpirun does not end within fifteen seconds, as when a machine cannot be reached any more, is killed, too.
class Supervisor {
 public:
  Supervisor(std::vector<std::string> words, bool ranks_take_interrupts)
      : words_(std::move(words)), gentle_(ranks_take_interrupts) {}

  int run() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals, &usual_mask_);
    signals_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) throw_error<Failure>("signalfd: {}", std::strerror(errno));
    start();
    while (!is_over()) turn();
    write_stderr(words_seen_.flush());
    return conclude();
  }

 private:
  void start() {
    const Pipe errors;
    std::optional<Pipe> typed;
    if (::isatty(STDIN_FILENO) == 1) typed.emplace();
    const pid_t parent = ::getpid();
    mpirun_ = ::fork();
    if (mpirun_ < 0) throw_error<Failure>("cannot start a process: {}", std::strerror(errno));
    if (mpirun_ == 0) become_mpirun(parent, errors.to, typed ? typed->from : -1);
    ::close(errors.to);
    errors_ = errors.from;
    if (!typed) return;
    ::close(typed->from);
    std::signal(SIGTTIN, SIG_IGN);
    std::thread(pass_on_what_is_typed, typed->to).detach();
  }

  [[noreturn]] void become_mpirun(pid_t parent, int errors, int input) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(errors, STDERR_FILENO);
    if (input >= 0) ::dup2(input, STDIN_FILENO);
    std::signal(SIGPIPE, SIG_DFL);  // exec would inherit that main ignores it
    std::signal(SIGTTOU, SIG_IGN);  // it writes from the background
    ::pthread_sigmask(SIG_SETMASK, &usual_mask_, nullptr);
    std::vector<char*> pointers;
    pointers.reserve(words_.size() + 1);
    for (std::string& word : words_) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execvp(pointers[0], pointers.data());
    write_stderr(fmt::format("heddle: error: cannot start {}: {}\n", words_[0], std::strerror(errno)));
    ::_exit(127);
  }

  void turn() {
    std::array<pollfd, 2> sources{pollfd{errors_, POLLIN, 0}, pollfd{signals_, POLLIN, 0}};
    if (::poll(sources.data(), sources.size(), kNapMilliseconds) == 0) write_stderr(words_seen_.flush());
    if (sources[0].revents != 0) read_errors();
    if (sources[1].revents != 0) take_signal();
    watch_failure();
    if (kill_at_ && Clock::now() >= *kill_at_) kill_run();
    int status = 0;
    if (!status_ && ::waitpid(mpirun_, &status, WNOHANG) == mpirun_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      ended_ = Clock::now();
    }
  }

  bool is_over() const { return status_ && (errors_ < 0 || Clock::now() - ended_ > kAfterTheEnd); }

  void read_errors() {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(errors_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return;
    if (count > 0) return write_stderr(words_seen_.add({bytes.data(), static_cast<std::size_t>(count)}));
    ::close(errors_);
    errors_ = -1;  // poll leaves it out
  }

  void take_signal() {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != sizeof info) return;
    const auto now = Clock::now();
    const bool again = signal_ == SIGINT && info.ssi_signo == SIGINT && now - last_signal_ < kTwice;
    signal_ = static_cast<int>(info.ssi_signo);
    last_signal_ = now;
    words_seen_.expect_ends();
    if (!gentle_ || again) return kill_run();
    send(kInterruptRanks);
    if (signal_ != SIGINT && !kill_at_) kill_at_ = now + kToEndByThemselves;
  }

  // No rank is waited for that could still name a cause: mpirun kills all others as soon as it hears of a failure.
  void watch_failure() {
    if (!words_seen_.rank_failed() || status_ || kill_at_) return;
    const auto now = Clock::now();
    if (!failed_at_) failed_at_ = now;
    if (now - *failed_at_ < kAfterFailure) return;
    given_up_ = true;
    kill_run();
    kill_at_ = now + kToKillAfterFailure;
  }

  void kill_run() {
    words_seen_.expect_kills();
    send(std::exchange(killed_, true) ? SIGKILL : SIGTERM);
    kill_at_ = Clock::now() + kToKill;
  }

  void send(int signal) const {
    if (!status_) ::kill(mpirun_, signal);
  }

  int conclude() {
    const bool ended_by_signal =
        signal_ != 0 && (killed_ || *status_ == 128 + SIGINT || *status_ == 128 + kInterruptRanks ||
                         (signal_ != SIGINT && *status_ != 0));
    if (ended_by_signal) {
      if (!words_seen_.said_interrupted()) write_stderr("heddle: interrupted: all ranks have ended\n");
      return 128 + signal_;
    }
    if (given_up_) {
      write_stderr("heddle: a rank has failed, and mpirun could not end the others: is a machine out of reach?\n");
      return 1;
    }
    const std::string rest = words_seen_.end();
    if (*status_ != 0) write_stderr(rest);
    return *status_;
  }

  std::vector<std::string> words_;
  bool gentle_;
  sigset_t usual_mask_{};
  pid_t mpirun_ = 0;
  int errors_ = -1;
  int signals_ = -1;
  MpirunWords words_seen_;
  std::optional<int> status_;
  Clock::time_point ended_;
  int signal_ = 0;  // the last
  Clock::time_point last_signal_;
  bool killed_ = false;
  bool given_up_ = false;
  std::optional<Clock::time_point> failed_at_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

int supervise(std::vector<std::string> words, bool ranks_take_interrupts) {
  return Supervisor(std::move(words), ranks_take_interrupts).run();
}

}  // namespace heddle
