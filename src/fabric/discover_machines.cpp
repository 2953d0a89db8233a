#include "fabric/discover_machines.h"

#include <array>
#include <cstdint>

#include "base/error.h"
#include "fabric/gather_words.h"

namespace heddle {

std::vector<int> discover_machines(Fabric& fabric, Stream& stream, const Launch& launch) {
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
  // mpirun numbers the ranks of a machine in their order. So each has its place in the machine that its number says
  // only where the ranks before it in that machine are the ones before it in the run.
  std::vector<int> machines;
  int first = 0;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const auto of = static_cast<std::size_t>(rank);
    if (places[of] == 0) {
      first = rank;
      machines.push_back(counts[of]);
    }
    const bool is_last = rank + 1 == fabric.size() || places[of + 1] == 0;
    if (machines.empty() || places[of] != rank - first || counts[of] != machines.back() ||
        is_last != (rank + 1 == first + machines.back()))
      throw_error<InputError>(
          "the ranks of a machine do not follow each other in this run: by rank, {} share a machine, and the place in "
          "it is "
          "{}; fill one machine after the other (mpirun --map-by slot)",
          fmt::join(counts, ", "), fmt::join(places, ", "));
  }
  return machines;
}

}  // namespace heddle
