#include "step/kv_pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

TEST(KvPages, LayersKeysAndValuesFillTheMemoryWithoutOverlap) {
  KvPages kv{
      .num_layers = 3, .num_pages = 5, .page_size = 4, .num_kv_heads = 2, .head_dim = 6, .dtype = DType::float16};
  std::vector<std::byte> memory(kv.size_bytes());
  kv.data = memory.data();
  const std::size_t half = std::size_t{5} * 2 * 4 * 6 * 2;
  EXPECT_EQ(kv.size_bytes(), half * 6);
  EXPECT_EQ(kv.bytes_per_token(), kv.size_bytes() / (5 * 4));
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(static_cast<std::byte*>(kv.keys(layer)) - memory.data(), static_cast<std::ptrdiff_t>(half * 2) * layer);
    EXPECT_EQ(static_cast<std::byte*>(kv.values(layer)) - static_cast<std::byte*>(kv.keys(layer)),
              static_cast<std::ptrdiff_t>(half));
  }
}

}  // namespace
}  // namespace heddle
