#include "fabric/discover_placement.h"

#include <cstdint>
#include <vector>

#include "base/copy.h"
#include "base/error.h"
#include "fabric/symmetric_memory.h"

namespace heddle {
namespace {

// What a rank says of itself in one word.
std::uint64_t word_of(const Launch& launch) {
  return static_cast<std::uint64_t>(launch.local_rank) << 32 | static_cast<std::uint64_t>(launch.num_local_ranks);
}
int local_rank_in(std::uint64_t word) {
  return static_cast<int>(word >> 32);
}
int local_ranks_in(std::uint64_t word) {
  return static_cast<int>(word & 0xffff'ffff);
}

std::vector<int> each(const std::vector<std::uint64_t>& words, int (*part)(std::uint64_t)) {
  std::vector<int> parts;
  parts.reserve(words.size());
  for (const std::uint64_t word : words) parts.push_back(part(word));
  return parts;
}

}  // namespace

Placement discover_placement(Fabric& fabric, Stream& stream, const Launch& launch) {
  const auto ranks = static_cast<std::size_t>(fabric.size());
  SymmetricMemory memory(fabric, ranks * sizeof(std::uint64_t));
  auto* const flags = reinterpret_cast<std::uint64_t*>(memory.data());
  for (int peer = 0; peer < fabric.size(); ++peer)
    fabric.signal_add(stream, peer, flags + fabric.rank(), word_of(launch));
  fabric.barrier(stream);
  std::vector<std::uint64_t> words(ranks);
  enqueue_copy(stream, words.data(), flags, ranks * sizeof(std::uint64_t));
  fabric.synchronize(stream);
  fabric.meet();  // before the memory is released
  const std::vector<int> counts = each(words, local_ranks_in), places = each(words, local_rank_in);
  const int count = counts[0];
  for (const int other : counts)
    if (other != count || fabric.size() % count != 0)
      throw_error<InputError>(
          "the machines of this run have different numbers of ranks: by rank, {} ranks share its machine; start as "
          "many on each",
          fmt::join(counts, ", "));
  // mpirun numbers the ranks of a machine in their order. So each has its place in the machine that its number says only
  // where the ranks before it in that machine are the ones before it in the run.
  for (int rank = 0; rank < fabric.size(); ++rank)
    if (places[static_cast<std::size_t>(rank)] != rank % count)
      throw_error<InputError>(
          "the ranks of a machine do not follow each other in this run: by rank, the place in its machine of {} is {}; "
          "fill one machine after the other (mpirun --map-by slot)",
          count, fmt::join(places, ", "));
  return {.machines = fabric.size() / count, .ranks_per_machine = count};
}

}  // namespace heddle
