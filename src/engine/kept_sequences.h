// Sequences that have ended and whose keys and values stay in the cache for as long as nobody needs the pages, so that
// a later sequence which begins with the same tokens need not compute them again.
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
  // `tokens`: those whose keys and values `pages` hold, as many as pages.length().
  void keep(std::int64_t id, std::vector<std::int32_t> tokens, PageTable pages);

  // Gives the pages back. Does nothing for an unknown id.
  void remove(std::int64_t id);

  // A fork of the kept sequence that has most of the beginning of `tokens`, cut to what they have in common, at most
  // `max_length` tokens; nothing when no sequence has any. The one it came from counts as just used.
  std::optional<PageTable> longest_prefix(std::span<const std::int32_t> tokens, int max_length);

  // Gives up the sequence that was kept or used the longest ago; false when there is none.
  bool give_way();

  int size() const { return static_cast<int>(kept_.size()); }

 private:
  struct Kept {
    std::int64_t id = 0;
    std::vector<std::int32_t> tokens;
    PageTable pages;
  };

  std::list<Kept> kept_;  // the last used at the back
};

}  // namespace heddle
