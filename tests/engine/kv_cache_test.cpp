#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/stream.h"
#include "base/thread_pool.h"

namespace heddle {
namespace {

// Each page of each plane and layer is filled with a number of its own.
std::vector<std::byte> filled(const KvPages& kv) {
  int number = 0;
  for (int plane = 0; plane < kv.layout.num_planes; ++plane)
    for (int layer = 0; layer < kv.num_layers; ++layer)
      for (int page = 0; page < kv.num_pages; ++page)
        std::fill_n(kv.at(plane, layer) + static_cast<std::size_t>(page) * kv.bytes_per_page(plane),
                    kv.bytes_per_page(plane), static_cast<std::byte>(number++));
  return {kv.data, kv.data + kv.size_bytes()};
}

TEST(KvCache, CopiesAPageInEveryPlaneAndLayer) {
  const KvLayout layouts[] = {
      keys_and_values(2, 3, DType::float32),
      one_latent(6, 2, DType::bfloat16),
      {.planes = {{{"narrow", 1, 3, DType::float32}, {"wide", 2, 5, DType::float16}}}, .num_planes = 2}};
  for (const KvLayout& layout : layouts) {
    SCOPED_TRACE(layout.plane(0).name);
    KvCache cache({.num_layers = 3, .num_pages = 4, .page_size = 2, .layout = layout});
    const KvPages& kv = cache.pages();
    std::vector<std::byte> expected = filled(kv);
    for (int plane = 0; plane < layout.num_planes; ++plane)
      for (int layer = 0; layer < kv.num_layers; ++layer) {
        const auto first = expected.begin() + (kv.at(plane, layer) - kv.data);
        const auto bytes = static_cast<std::ptrdiff_t>(kv.bytes_per_page(plane));
        std::copy_n(first + bytes, bytes, first + 3 * bytes);
        std::copy_n(first + 3 * bytes, bytes, first);
      }
    ThreadPool pool(2);
    Stream stream(pool);
    const PageCopy copies[] = {{.from = 1, .to = 3}, {.from = 3, .to = 0}};
    cache.copy_pages(copies, stream);
    stream.synchronize();
    EXPECT_EQ(std::vector<std::byte>(kv.data, kv.data + kv.size_bytes()), expected);
  }
}

}  // namespace
}  // namespace heddle
