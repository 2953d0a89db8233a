#include "fabric/gather_words.h"

#include "base/copy.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

std::vector<std::uint64_t> gather_words(Fabric& fabric, Stream& stream, std::span<const std::uint64_t> mine) {
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(fabric.size()));
  SymmetricMemory memory(fabric, all.size() * sizeof(std::uint64_t));
  auto* const words = reinterpret_cast<std::uint64_t*>(memory.data());
  const std::size_t first = mine.size() * static_cast<std::size_t>(fabric.rank());
  for (int peer = 0; peer < fabric.size(); ++peer)
    for (std::size_t i = 0; i < mine.size(); ++i) fabric.signal_add(stream, peer, words + first + i, mine[i]);
  fabric.barrier(stream);
  enqueue_copy(stream, all.data(), words, all.size() * sizeof(std::uint64_t));
  fabric.synchronize(stream);
  fabric.meet();  // before the memory is released
  return all;
}

}  // namespace heddle
