// How rank 0 chooses the attention of decode steps from measured tables.
#include "parallel/decode_choice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

const SplitKey kTunedModel{.layers = 2, .hidden = 64, .intermediate = 90, .heads = 4, .head_dim = 16};
constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr DecodeChoice kPlain{}, kStreamed{.form = DecodeChoice::Form::streamed},
    kFours{.form = DecodeChoice::Form::clusters, .cluster = 4, .parts = 2};

TEST(DecodeModes, HaveTheNamesThatAUserGives) {
  for (const std::string& name : decode_mode_names()) EXPECT_EQ(name_of(decode_mode_named(name).value()), name);
  EXPECT_EQ(decode_mode_names().front(), "auto");
  EXPECT_FALSE(decode_mode_named("default").has_value());
}

TEST(DecodeTables, AreFusedWhereThatWasFasterByMoreThanNoise) {
  const std::vector<DecodeSample> samples{
      {.tokens = 1, .context = 1024, .plain_seconds = 1, .fused = {{kStreamed, 0.9}, {kFours, 0.8}}},
      {.tokens = 1, .context = 4096, .plain_seconds = 1, .fused = {{kStreamed, 0.995}}},
      {.tokens = 4, .context = 1024, .plain_seconds = 1, .fused = {{kStreamed, 0.5}}},
      {.tokens = 4, .context = 4096, .plain_seconds = 1, .fused = {{kFours, 2}}}};
  EXPECT_EQ(choose_decode(samples), (DecodeTable{{1, 1024, kFours, DecodeTimes{1, 0.8}},
                                                 {1, kUnlimited, kPlain, DecodeTimes{1, 0.995}},
                                                 {kUnlimited, 1024, kStreamed, DecodeTimes{1, 0.5}},
                                                 {kUnlimited, kUnlimited, kPlain, DecodeTimes{1, 2}}}));
  EXPECT_THROW(choose_decode({}), InvalidArgument);
  EXPECT_THROW(choose_decode({{.tokens = 1, .context = 8, .plain_seconds = 1, .fused = {}}}), InvalidArgument);
}

// The largest that was measured decides for what was too large.
TEST(DecodeTables, WhatWasLeftOutDecidesNothing) {
  const DecodeSample measured{.tokens = 4, .context = 1024, .plain_seconds = 1, .fused = {{kStreamed, 0.9}}};
  const DecodeSample left_out{.tokens = 4, .context = 4096, .fused = {}, .left_out = "too large"};
  const DecodeSample above{.tokens = 16, .context = 1024, .fused = {}, .left_out = "too many"};
  EXPECT_EQ(choose_decode({measured, left_out, above}),
            (DecodeTable{{kUnlimited, kUnlimited, kStreamed, DecodeTimes{1, 0.9}}}));
  EXPECT_TRUE(choose_decode({left_out, above}).empty());
}

TEST(DecodeTables, HaveWordsForEachChoice) {
  EXPECT_EQ(text_of(kPlain, DeviceKind::cuda), "separate operators");
  EXPECT_EQ(text_of(kStreamed, DeviceKind::cuda), "one operator, streamed by a block on each SM");
  EXPECT_EQ(text_of(kFours, DeviceKind::cuda),
            "one operator, in clusters of 4 blocks, each KV head's query heads in 2 parts");
  EXPECT_EQ(text_of(kFours, DeviceKind::cpu), "one operator") << "the CPU has one way";
}

TEST(DecodeTables, ForcedOnesOfferEveryFormOfTheDevice) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    const DecodeTable table = forced_decode(device);
    EXPECT_TRUE(has_fused(table));
    for (const DecodeLine& line : table) EXPECT_TRUE(line.choice.fused());
  }
  EXPECT_FALSE(has_fused({}));
  EXPECT_FALSE(has_fused({{.choice = kPlain}}));
}

TEST(DecodeTables, AreFoundAgainForTheSameModelAndRanksAlone) {
  TunedStore store({}, "machine", "1");
  EXPECT_FALSE(tuned_decode(store, kTunedModel).has_value());
  const DecodeTable table{
      {4, 1024, kStreamed, DecodeTimes{0.25, 0.125}}, {4, kUnlimited, kFours}, {kUnlimited, kUnlimited, kPlain}};
  put_tuned_decode(store, kTunedModel, table);
  EXPECT_EQ(tuned_decode(store, kTunedModel), table);
  SplitKey other = kTunedModel;
  other.ranks = 2;
  EXPECT_FALSE(tuned_decode(store, other).has_value());
  other = kTunedModel;
  other.head_dim = 32;
  EXPECT_FALSE(tuned_decode(store, other).has_value());
}

TEST(DecodeTables, WhatIsNoTableIsNotTuned) {
  const char* const bad[] = {"5",
                             R"([5])",
                             R"([{"up_to_tokens": 4}])",
                             R"([{"form": "woven"}])",
                             R"([{"form": 1}])",
                             R"([{"form": "streamed", "up_to_tokens": 0}])",
                             R"([{"form": "streamed", "up_to_context": "all"}])",
                             R"([{"form": "streamed", "separate_ms": 1}])",
                             R"([{"form": "streamed", "separate_ms": 1, "fused_ms": "2"}])",
                             R"([{"form": "clusters"}])",
                             R"([{"form": "clusters", "cluster": 4}])",
                             R"([{"form": "clusters", "cluster": 300, "parts": 1}])"};
  for (const char* const value : bad) {
    TunedStore store({}, "machine", "1");
    store.put("decode." + name_of(kTunedModel), nlohmann::json::parse(value));
    EXPECT_FALSE(tuned_decode(store, kTunedModel).has_value()) << value;
  }
}

}  // namespace
}  // namespace heddle
