#include "parallel/split_rule.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

// GEMMs of a layer of Llama-3-70B on one of four ranks, with the tiles that cuBLASLt mostly takes.
LayerTiles layer_of_70b() {
  const auto blocks = [](int features, int tile) { return (features + tile - 1) / tile; };
  return {.kernels = {{128, blocks(2560, 176)},
                      {256, blocks(8192, 128)},
                      {256, blocks(14336, 256)},
                      {256, blocks(8192, 128)}},
          .num_sms = 116};
}

constexpr SplitOptions kFrom1024{.kind = SplitKind::smart, .min_tokens = 1024};

TEST(SplitRule, FewTokensStayWhole) {
  const LayerTiles tiles = layer_of_70b();
  EXPECT_EQ(prefix_tokens(kFrom1024, tiles, 1), 0);
  EXPECT_EQ(prefix_tokens(kFrom1024, tiles, 1023), 0);
  EXPECT_GT(prefix_tokens(kFrom1024, tiles, 1024), 0);
}

TEST(SplitRule, NoPartIsSmallerThanATile) {
  const LayerTiles tiles = layer_of_70b();
  for (const SplitKind kind : {SplitKind::equal, SplitKind::smart})
    for (int tokens = 1; tokens < 3000; tokens += 37) {
      const int prefix = prefix_tokens({.kind = kind, .min_tokens = 1}, tiles, tokens);
      if (tokens < 512)
        EXPECT_EQ(prefix, 0) << tokens;
      else
        EXPECT_TRUE(prefix % 256 == 0 && prefix >= 256 && prefix < tokens) << prefix << " of " << tokens;
    }
}

TEST(SplitRule, ASmartSplitHasNoMoreWavesThanHalves) {
  const LayerTiles tiles = layer_of_70b();
  for (int tokens = 1024; tokens <= 8192; tokens += 512) {
    const auto extra_waves = [&](SplitKind kind) {
      return schedule::split_at(tiles.kernels, prefix_tokens({kind, 1}, tiles, tokens), tokens, tiles.num_sms)
          .extra_waves;
    };
    EXPECT_LE(extra_waves(SplitKind::smart), extra_waves(SplitKind::equal)) << tokens;
  }
}

TEST(SplitRule, NothingIsCutWhereNobodyAsksOrNoTilesAreKnown) {
  EXPECT_EQ(prefix_tokens({}, layer_of_70b(), 8192), 0);
  EXPECT_EQ(prefix_tokens(kFrom1024, {}, 8192), 0);
}

}  // namespace
}  // namespace heddle
