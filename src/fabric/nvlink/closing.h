// The order in which ranks free memory that others reach. Plain host code, so its tests need no GPU.
#pragma once

#include <chrono>

#include "base/function_ref.h"
#include "fabric/nvlink/host_exchange.h"

namespace heddle {

struct ClosingSteps {
  FunctionRef<void()> wait_until_idle;  // until the GPU has ended this rank's work
  FunctionRef<void()> let_go;           // unmap the other ranks' memory
  // Free this rank's memory. cudaFree waits for all work on its GPU, including that of other ranks.
  FunctionRef<void()> free;
};

// Collective. Each step begins when every rank has ended the step before. Returns when every rank has freed its memory,
// so no cudaFree is pending when the caller launches a kernel that waits for a peer. Throws what the steps throw, and
// the exchange's Timeout.
void close_together(HostExchange& exchange, const ClosingSteps& steps);

// For a rank that ends after a failure, when ranks cannot agree any more. Frees this rank's memory once every other
// rank has unmapped it or its process is gone. Returns false, with the memory still allocated, if that takes longer
// than `limit`. Throws what the steps throw, with the memory still allocated.
[[nodiscard]] bool close_after_failure(HostExchange& exchange, const ClosingSteps& steps,
                                       std::chrono::nanoseconds limit);

}  // namespace heddle
