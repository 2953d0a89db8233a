// What happens only the first time, before a server says that it is ready: on a GPU a graph for each number of sequences
// that decode, and kernels that cuBLASLt loads for a size of step.
#pragma once

#include "engine/engine.h"

namespace heddle {

// What it runs.
struct WarmUp {
  int sequences = 64;      // decode together, then fewer, to one; as many as the engine takes, if those are fewer
  int step_tokens = 4096;  // of a prompt with some more behind them; of another; then half of it, and so on
};

// Runs requests of its own until the engine is idle again; their tokens are nobody's. Requires an idle engine. Throws what
// Engine::step throws; the engine is idle then, too.
void warm_up(Engine& engine, const WarmUp& what);

}  // namespace heddle
