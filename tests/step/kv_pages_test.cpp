#include "step/kv_pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

// Every plane of every layer, once.
void expect_filled(KvPages kv) {
  std::vector<std::byte> memory(kv.size_bytes());
  kv.data = memory.data();
  EXPECT_EQ(kv.bytes_per_token(),
            kv.size_bytes() / (static_cast<std::size_t>(kv.num_pages) * static_cast<std::size_t>(kv.page_size)));
  std::size_t end = 0;
  for (int plane = 0; plane < kv.layout.num_planes; ++plane)
    for (int layer = 0; layer < kv.num_layers; ++layer) {
      EXPECT_EQ(kv.at(plane, layer) - memory.data(), static_cast<std::ptrdiff_t>(end)) << plane << " " << layer;
      end += kv.bytes_per_page(plane) * static_cast<std::size_t>(kv.num_pages);
    }
  EXPECT_EQ(end, memory.size());
}

TEST(KvPages, PlanesAndLayersFillTheMemoryWithoutOverlap) {
  KvPages kv{.num_layers = 3, .num_pages = 5, .page_size = 4, .layout = keys_and_values(2, 6, DType::float16)};
  EXPECT_EQ(kv.size_bytes(), std::size_t{2} * 3 * 5 * 4 * 2 * 6 * 2);
  expect_filled(kv);
  kv.layout = one_latent(512, 64, DType::bfloat16);
  EXPECT_EQ(kv.size_bytes(), std::size_t{3} * 5 * 4 * 576 * 2);
  expect_filled(kv);
  kv.layout = {.planes = {{{"narrow", 1, 3, DType::float32}, {"wide", 2, 7, DType::float16}}}, .num_planes = 2};
  EXPECT_EQ(kv.bytes_per_page(0), 4U * 12);
  EXPECT_EQ(kv.bytes_per_page(1), 4U * 28);
  expect_filled(kv);
}

}  // namespace
}  // namespace heddle
