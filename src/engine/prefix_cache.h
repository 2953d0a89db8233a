// Whole pages of keys and values by the tokens that they hold, for later sequences that begin with the same tokens. A page
// is found by a hash of its tokens and of the pages before it (as PagedAttention's implementations do it: vLLM,
// "Automatic Prefix Caching"); on a hit the tokens themselves are compared, so that no collision mixes up two texts.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/page_allocator.h"

namespace heddle {

class PrefixCache {
 public:
  // How much of a sequence is in the cache: its first pages, the last of which is `last`.
  struct Chain {
    std::uint64_t last = 0;  // 0: none
    int num_pages = 0;
    bool broken = false;  // the cache has lost `last`: nothing more can be added
  };

  PrefixCache(PageAllocator& allocator, int page_size) : allocator_(allocator), page_size_(page_size) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache() { clear(); }

  // The longest run of cached pages that `owner`'s `tokens` begin with, of at most `max_length` tokens. Shares the pages
  // with the table, and counts as their use. Pages of another owner are never found: how soon an answer comes would tell
  // one user what another has asked. `chain` becomes the run's.
  PageTable longest_prefix(std::uint64_t owner, std::span<const std::int32_t> tokens, int max_length, Chain& chain);

  // Adds the pages of a sequence that are full, from chain.num_pages on. `tokens`: those whose keys and values are in
  // `pages` already, or will be before a later step reads them.
  void add(std::uint64_t owner, std::span<const std::int32_t> tokens, const PageTable& pages, Chain& chain);

  // Marks the chain's pages as just used, the first of them last: what begins many texts outlives what ends one.
  void touch(const Chain& chain);

  // Releases the page that was used least recently among those that no sequence shares; false when there is none.
  bool give_way();

  void clear();

  int num_pages() const { return static_cast<int>(nodes_.size()); }
  int num_idle_pages() const;  // that no sequence shares; takes time linear in num_pages()

 private:
  struct Node {
    std::uint64_t id = 0;
    std::uint64_t parent = 0;  // 0: the first page of a text
    std::uint64_t owner = 0;
    std::uint64_t hash = 0;
    std::int32_t page = 0;
    std::vector<std::int32_t> tokens;  // [page_size]
  };
  using Place = std::list<Node>::iterator;

  std::optional<Place> find(std::uint64_t parent, std::uint64_t owner, std::span<const std::int32_t> tokens,
                            std::uint64_t hash);
  void drop(Place place);

  PageAllocator& allocator_;
  int page_size_;
  std::uint64_t next_id_ = 1;
  std::list<Node> nodes_;  // most recently used last
  std::unordered_multimap<std::uint64_t, Place> by_hash_;
  std::unordered_map<std::uint64_t, Place> by_id_;
};

}  // namespace heddle
