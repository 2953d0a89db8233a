// Ranks as threads over shared memory, each with a stream and a communicator.
#pragma once

#include <numeric>

#include "base/function_ref.h"
#include "base/stream.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "collectives/communicator.h"
#include "fabric/shm/threads.h"

namespace heddle {

struct RankOptions {
  FabricOptions fabric{.heap_bytes = std::size_t{4} << 20};
  CommunicatorOptions communicator;
};

// Runs body(communicator, stream) on each rank of a world; team_of(rank) is the team that it makes a communicator for.
inline void run_ranks(int world_size, const RankOptions& options, FunctionRef<Ranks(int)> team_of,
                      FunctionRef<void(Communicator&, Stream&)> body) {
  ShmThreads world(world_size, options.fabric);
  run_team(world_size, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    Communicator communicator(*fabric, team_of(member.rank()), stream, options.communicator);
    body(communicator, stream);
    fabric->synchronize(stream);
    member.barrier();  // nobody takes a rank's memory away while others still read it
  });
}

inline void run_ranks(int world_size, const RankOptions& options, FunctionRef<void(Communicator&, Stream&)> body) {
  Ranks all(static_cast<std::size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  run_ranks(
      world_size, options, [&](int) { return all; }, body);
}

}  // namespace heddle
