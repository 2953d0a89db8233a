// The order in which ranks give memory back that others reach. Plain host code: its tests need no GPU.
#pragma once

#include <chrono>

#include "base/function_ref.h"
#include "fabric/nvlink/host_exchange.h"

namespace heddle {

struct ClosingSteps {
  FunctionRef<void()> wait_until_idle;  // until the GPU has ended this rank's work
  FunctionRef<void()> let_go;           // of the other ranks' memory
  // The own memory. cudaFree waits for all work on its GPU, that of other ranks on it included.
  FunctionRef<void()> free;
};

// Collective. A step begins when every rank has ended the step before, and it returns when every rank has freed its
// memory: a kernel that waits for this rank, which the caller may launch next, meets nobody who still frees. Throws as
// the steps do, and the exchange's Timeout.
void close_together(HostExchange& exchange, const ClosingSteps& steps);

// For a rank that ends after a failure, when nothing can be agreed on any more. Frees the own memory once every other
// rank has let go of it or its process is gone; returns false, with the memory still there, when that is not so after
// `limit`. Throws what the steps throw, with the memory still there.
[[nodiscard]] bool close_after_failure(HostExchange& exchange, const ClosingSteps& steps,
                                       std::chrono::nanoseconds limit);

}  // namespace heddle
