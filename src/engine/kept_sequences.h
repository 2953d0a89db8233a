// Ended sequences whose keys and values stay in the cache until other sequences need the pages. A later sequence that
// begins with the same tokens need not compute them again.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "engine/page_allocator.h"

namespace heddle {

class KeptSequences {
 public:
  // `tokens`: those whose keys and values are in `pages`; there are pages.length() of them.
  void keep(std::int64_t id, std::vector<std::int32_t> tokens, PageTable pages);

  // Releases the pages. Does nothing for an unknown id.
  void remove(std::int64_t id);

  // Forks the kept sequence with the longest common prefix with `tokens`, truncated to that prefix and to `max_length`
  // tokens; nothing when there is no common prefix. The kept sequence counts as just used.
  std::optional<PageTable> longest_prefix(std::span<const std::int32_t> tokens, int max_length);

  // Releases the least recently kept or used sequence; false when there is none.
  bool give_way();

  int size() const { return static_cast<int>(kept_.size()); }

 private:
  struct Kept {
    std::int64_t id = 0;
    std::vector<std::int32_t> tokens;
    PageTable pages;
  };

  std::list<Kept> kept_;  // most recently used last
};

}  // namespace heddle
