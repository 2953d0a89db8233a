#include "fabric/nvlink/closing.h"

namespace heddle {

void close_together(HostExchange& exchange, const ClosingSteps& steps) {
  // Every rank's streams are idle by now, so no work that is waited for below waits for a rank that is not here.
  exchange.meet(exchange.world(), "closing");
  steps.wait_until_idle();
  steps.let_go();
  exchange.meet(exchange.world(), "heaps let go");
  steps.free();
  // A rank that the last meeting comes too late for ends as after a failure, and need not wait here.
  static_cast<void>(exchange.part(std::chrono::nanoseconds(0)));
  exchange.meet(exchange.world(), "heaps freed");
}

bool close_after_failure(HostExchange& exchange, const ClosingSteps& steps, std::chrono::nanoseconds limit) {
  steps.wait_until_idle();
  steps.let_go();
  if (!exchange.part(limit)) return false;
  steps.free();
  return true;
}

}  // namespace heddle
