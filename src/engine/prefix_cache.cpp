#include "engine/prefix_cache.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace heddle {
namespace {

// SplitMix64's finalizer (Steele, Lea, Flood, 2014).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

std::uint64_t hash_of(std::uint64_t parent, std::uint64_t owner, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = mixed(parent + 0x9E3779B97F4A7C15U) ^ mixed(owner);
  for (const std::int32_t token : tokens) hash = mixed(hash + 0x9E3779B97F4A7C15U + static_cast<std::uint32_t>(token));
  return hash;
}

}  // namespace

std::optional<PrefixCache::Place> PrefixCache::find(std::uint64_t parent, std::uint64_t owner,
                                                    std::span<const std::int32_t> tokens, std::uint64_t hash) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const Node& node = *at->second;
    if (node.parent == parent && node.owner == owner && std::ranges::equal(node.tokens, tokens)) return at->second;
  }
  return std::nullopt;
}

PageTable PrefixCache::longest_prefix(std::uint64_t owner, std::span<const std::int32_t> tokens, int max_length,
                                      Chain& chain) {
  const auto page_size = static_cast<std::size_t>(page_size_);
  const std::size_t most = std::min(tokens.size(), static_cast<std::size_t>(std::max(max_length, 0)));
  PageTable prefix(allocator_, page_size_);
  chain = {};
  for (std::size_t begin = 0; begin + page_size <= most; begin += page_size) {
    const auto block = tokens.subspan(begin, page_size);
    const auto found = find(chain.last, owner, block, hash_of(chain.last, owner, block));
    if (!found) break;
    prefix.share((*found)->page);
    chain.last = (*found)->id;
    ++chain.num_pages;
  }
  touch(chain);
  return prefix;
}

void PrefixCache::add(std::uint64_t owner, std::span<const std::int32_t> tokens, const PageTable& pages, Chain& chain) {
  const auto page_size = static_cast<std::size_t>(page_size_);
  while (!chain.broken && (static_cast<std::size_t>(chain.num_pages) + 1) * page_size <= tokens.size()) {
    if (chain.last != 0 && !by_id_.contains(chain.last)) {
      chain.broken = true;
      return;
    }
    const auto index = static_cast<std::size_t>(chain.num_pages);
    const auto block = tokens.subspan(index * page_size, page_size);
    const std::uint64_t hash = hash_of(chain.last, owner, block);
    auto place = find(chain.last, owner, block, hash);
    if (!place) {
      const std::int32_t page = pages.pages()[index];
      allocator_.retain(page);
      nodes_.push_back({.id = next_id_++,
                        .parent = chain.last,
                        .owner = owner,
                        .hash = hash,
                        .page = page,
                        .tokens = {block.begin(), block.end()}});
      place = std::prev(nodes_.end());
      by_hash_.emplace(hash, *place);
      by_id_.emplace((*place)->id, *place);
    }
    chain.last = (*place)->id;
    ++chain.num_pages;
  }
}

void PrefixCache::touch(const Chain& chain) {
  for (std::uint64_t id = chain.last; id != 0;) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    nodes_.splice(nodes_.end(), nodes_, found->second);
    id = found->second->parent;
  }
}

bool PrefixCache::give_way() {
  for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
    if (allocator_.references(node->page) > 1) continue;  // a sequence uses it: nothing would become free
    drop(node);
    return true;
  }
  return false;
}

void PrefixCache::drop(Place place) {
  allocator_.release(place->page);
  const auto [begin, end] = by_hash_.equal_range(place->hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == place; }));
  by_id_.erase(place->id);
  nodes_.erase(place);
}

void PrefixCache::clear() {
  while (!nodes_.empty()) drop(nodes_.begin());
}

int PrefixCache::num_idle_pages() const {
  return static_cast<int>(
      std::ranges::count_if(nodes_, [&](const Node& node) { return allocator_.references(node.page) == 1; }));
}

}  // namespace heddle
