// bench flag: ping-pong latency of a flag between two ranks.
#pragma once

#include <cstdint>

#include "base/stream.h"
#include "device/atomics.h"
#include "fabric/fabric.h"

namespace CLI {
class App;
}

namespace heddle {

void add_flag_benchmark(CLI::App& bench);

// `rounds` times, this rank and `peer` raise each other's flag (`flag`, symmetric, 0 before the first call) and wait
// for it; the rank with `lead` raises first. All rounds run inside one kernel, or one task of a CPU stream. `earlier`:
// rounds of previous calls. Needs Capability::peer_addresses.
struct FlagRounds {
  int peer;
  std::uint64_t* flag;
  std::uint64_t earlier;
  std::uint64_t rounds;
  enum class Turn : std::uint8_t { first, second } turn;
  // release: a rank that sees the flag also sees what was written before. relaxed: the flag only, as where it is the
  // message itself.
  Order order = Order::release;
};
void enqueue_flag_rounds(const Fabric& fabric, const FlagRounds& rounds, Stream& stream);

}  // namespace heddle
