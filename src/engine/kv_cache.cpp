#include "engine/kv_cache.h"

#include <cstring>

#include "base/copy.h"
#include "base/error.h"

namespace heddle {
namespace {

Buffer allocate(const KvPages& shape, Device device) {
  try {
    return Buffer(shape.size_bytes(), device);
  } catch (const Failure& failure) {
    throw_error<Failure>("key-value cache of {} tokens: {}; ask for fewer sequences or a shorter context",
                         std::int64_t{shape.num_pages} * shape.page_size, failure.what());
  }
}

void copy_pages_on_gpu(const KvPages& kv, std::span<const PageCopy> copies, Stream& stream) {
  const std::size_t bytes = kv.bytes_per_page();
  const auto at = [&](void* half, std::int32_t page) {
    return static_cast<std::byte*>(half) + bytes * static_cast<std::size_t>(page);
  };
  for (const PageCopy copy : copies)
    for (int layer = 0; layer < kv.num_layers; ++layer) {
      enqueue_copy(stream, at(kv.keys(layer), copy.to), at(kv.keys(layer), copy.from), bytes);
      enqueue_copy(stream, at(kv.values(layer), copy.to), at(kv.values(layer), copy.from), bytes);
    }
}

}  // namespace

KvCache::KvCache(KvPages shape, Device device) : memory_(allocate(shape, device)), pages_(shape) {
  pages_.data = memory_.data();
}

void KvCache::copy_pages(std::span<const PageCopy> copies, Stream& stream) {
  if (stream.device().kind == DeviceKind::cuda) return copy_pages_on_gpu(pages_, copies, stream);
  for (const PageCopy copy : copies) {
    stream.enqueue([kv = pages_, copy](ThreadPool&) {
      const std::size_t bytes = kv.bytes_per_page();
      const auto at = [&](void* half, std::int32_t page) {
        return static_cast<std::byte*>(half) + bytes * static_cast<std::size_t>(page);
      };
      for (int layer = 0; layer < kv.num_layers; ++layer) {
        std::memcpy(at(kv.keys(layer), copy.to), at(kv.keys(layer), copy.from), bytes);
        std::memcpy(at(kv.values(layer), copy.to), at(kv.values(layer), copy.from), bytes);
      }
    });
  }
}

}  // namespace heddle
