#include "fabric/discover_placement.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/copy.h"
#include "base/error.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

Placement discover_placement(Fabric& fabric, Stream& stream, int local_ranks) {
  const auto ranks = static_cast<std::size_t>(fabric.size());
  SymmetricMemory memory(fabric, ranks * sizeof(std::uint64_t));
  auto* const flags = reinterpret_cast<std::uint64_t*>(memory.data());
  for (int peer = 0; peer < fabric.size(); ++peer)
    fabric.signal_add(stream, peer, flags + fabric.rank(), static_cast<std::uint64_t>(local_ranks));
  fabric.barrier(stream);
  std::vector<std::uint64_t> counts(ranks);
  enqueue_copy(stream, counts.data(), flags, ranks * sizeof(std::uint64_t));
  fabric.synchronize(stream);
  fabric.meet();  // before the memory is released
  if (std::ranges::any_of(counts, [&](std::uint64_t count) { return count != counts[0]; }) || ranks % counts[0] != 0)
    throw_error<InputError>(
        "the machines of this run have different numbers of ranks: by rank, {} ranks share its machine; start as many "
        "on each",
        fmt::join(counts, ", "));
  return {.machines = static_cast<int>(ranks / counts[0]), .ranks_per_machine = static_cast<int>(counts[0])};
}

}  // namespace heddle
