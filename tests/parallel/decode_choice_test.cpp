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
      {.tokens = 4, .context = 4096, .plain_seconds = 1, .fused = {}}};
  EXPECT_EQ(choose_decode(samples), (DecodeTable{{1, 1024, kFours},
                                                 {1, kUnlimited, kPlain},
                                                 {kUnlimited, 1024, kStreamed},
                                                 {kUnlimited, kUnlimited, kPlain}}));
  EXPECT_THROW(choose_decode({}), InvalidArgument);
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
  const DecodeTable table{{4, 1024, kStreamed}, {4, kUnlimited, kFours}, {kUnlimited, kUnlimited, kPlain}};
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
