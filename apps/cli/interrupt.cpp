#include "cli/interrupt.h"

#include <csignal>

namespace heddle {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t signal_seen = 0;

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal finds the default again
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  set_handler([](int signal) { signal_seen = signal; });
}

InterruptGuard::~InterruptGuard() {
  set_handler(SIG_DFL);
}

int InterruptGuard::signal() const {
  return signal_seen;
}

}  // namespace heddle
