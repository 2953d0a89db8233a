#include "fabric/discover_placement.h"

#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "fabric/gather_words.h"

namespace heddle {

Placement discover_placement(Fabric& fabric, Stream& stream, const Launch& launch) {
  const std::vector<std::uint64_t> words = gather_words(
      fabric, stream,
      std::array{static_cast<std::uint64_t>(launch.num_local_ranks), static_cast<std::uint64_t>(launch.local_rank)});
  std::vector<int> counts, places;  // by rank
  counts.reserve(words.size() / 2);
  places.reserve(words.size() / 2);
  for (std::size_t i = 0; i < words.size(); i += 2) {
    counts.push_back(static_cast<int>(words[i]));
    places.push_back(static_cast<int>(words[i + 1]));
  }
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
