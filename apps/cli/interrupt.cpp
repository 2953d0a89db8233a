#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

// A signal handler can only access globals.
std::atomic<int> signal_seen = 0;
std::atomic<int> wakeup = -1;  // an eventfd, readable once a signal was seen, whichever thread it came to

void handle(int signal) {
  const int error = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t count = ::write(wakeup, &one, sizeof one);
  signal_seen = signal;  // last: a thread that sees it may drain the eventfd
  errno = error;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal has its default action
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  if (wakeup < 0) wakeup = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // never closed: a handler may be about to write
  if (wakeup < 0) throw_error<Failure>("eventfd: {}", std::strerror(errno));
  rearm();
}

InterruptGuard::~InterruptGuard() {
  set_handler(SIG_DFL);
}

int InterruptGuard::signal() const {
  return signal_seen;
}

void InterruptGuard::rearm() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wakeup, &count, sizeof count);
  signal_seen = 0;
  set_handler(handle);
}

ssize_t InterruptGuard::read(int file, std::span<char> buffer, FunctionRef<void()> while_waiting) const {
  constexpr int kMilliseconds = 250;
  pollfd sources[] = {{file, POLLIN, 0}, {wakeup, POLLIN, 0}};
  for (;;) {
    if (interrupted()) {
      errno = EINTR;
      return -1;
    }
    ssize_t count = ::poll(sources, 2, kMilliseconds);
    if (count == 0) {
      while_waiting();
      continue;
    }
    if (count > 0 && sources[0].revents == 0) continue;
    if (count > 0) count = ::read(file, buffer.data(), buffer.size());
    if (count >= 0 || errno != EINTR) return count;
  }
}

}  // namespace heddle
