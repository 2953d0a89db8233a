#include "engine/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/copy_pages.h"

namespace heddle {
namespace {

// A step writes to each plane of each layer. Where these are of a few huge pages, the first token would have the system
// clear most of the cache, which takes longer than a step of such a model.
void take_small_pages_for_small_planes(Buffer& memory, const KvPages& shape) {
  constexpr std::size_t kLargeEnough = std::size_t{8} << 20;
  if (memory.size_bytes() == 0 || memory.device().kind != DeviceKind::cpu) return;
  const auto planes = static_cast<std::size_t>(shape.layout.num_planes * shape.num_layers);
  if (shape.size_bytes() / planes < kLargeEnough)
    ::madvise(memory.data(), memory.size_bytes(), MADV_NOHUGEPAGE);  // advice: failure does not matter
}

Buffer allocate(const KvPages& shape, Device device) {
  try {
    Buffer memory(shape.size_bytes(), device);
    take_small_pages_for_small_planes(memory, shape);
    return memory;
  } catch (const Failure& failure) {
    throw_error<Failure>("key-value cache of {} tokens: {}; ask for fewer sequences or a shorter context",
                         std::int64_t{shape.num_pages} * shape.page_size, failure.what());
  }
}

}  // namespace

KvCache::KvCache(KvPages shape, Device device) : memory_(allocate(shape, device)), pages_(shape) {
  pages_.data = memory_.data();
}

void KvCache::copy_pages(std::span<const PageCopy> copies, const Lane& lane) {
  const int planes = pages_.layout.num_planes;
  for (int plane = 0, end = 0; plane < planes; plane = end) {
    // Planes whose pages are as large follow each other like layers: one call for all of them.
    for (end = plane + 1; end < planes && pages_.bytes_per_page(end) == pages_.bytes_per_page(plane);) ++end;
    copy_planes(plane, end - plane, copies, lane);
  }
}

void KvCache::copy_planes(int first, int num_planes, std::span<const PageCopy> copies, const Lane& lane) {
  while (!copies.empty()) {
    CopyPagesParams params{.data = pages_.at(first, 0),
                           .num_halves = num_planes * pages_.num_layers,
                           .num_pages = pages_.num_pages,
                           .page_bytes = pages_.bytes_per_page(first)};
    const std::size_t count = std::min<std::size_t>(copies.size(), CopyPagesParams::kMostMoves);
    for (const PageCopy copy : copies.first(count))
      params.moves[static_cast<std::size_t>(params.num_moves++)] = {copy.from, copy.to};
    heddle::copy_pages(params, lane);
    copies = copies.subspan(count);
  }
}

}  // namespace heddle
