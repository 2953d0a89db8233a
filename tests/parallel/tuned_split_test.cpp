#include "parallel/tuned_split.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "machine/tuned_store.h"

namespace heddle {
namespace {

constexpr SplitKey kModel{.layers = 80, .hidden = 8192, .intermediate = 28672, .heads = 64, .ranks = 4};

TEST(TunedSplit, IsFoundAgainForTheSameModelAndRanksAlone) {
  TunedStore store({}, "machine", "1");
  EXPECT_FALSE(tuned_split(store, kModel).has_value());
  put_tuned_split(store, kModel, {.kind = SplitKind::smart, .min_tokens = 2048});
  ASSERT_TRUE(tuned_split(store, kModel).has_value());
  EXPECT_EQ(tuned_split(store, kModel)->min_tokens, 2048);
  SplitKey other = kModel;
  other.ranks = 2;
  EXPECT_FALSE(tuned_split(store, other).has_value());
}

TEST(TunedSplit, NeverFasterIsAResultToo) {
  TunedStore store({}, "machine", "1");
  put_tuned_split(store, kModel, {});
  ASSERT_TRUE(tuned_split(store, kModel).has_value());
  EXPECT_EQ(tuned_split(store, kModel)->kind, SplitKind::none);
}

TEST(TunedSplit, WhatIsNoNumberOfTokensIsNotTuned) {
  for (const nlohmann::json& value : {nlohmann::json(-5), nlohmann::json(1e18), nlohmann::json("many")}) {
    TunedStore store({}, "machine", "1");
    store.put(name_of(kModel), value);
    EXPECT_FALSE(tuned_split(store, kModel).has_value()) << value;
  }
}

TEST(TunedSplit, NoMeasuredSizeBecomesSlower) {
  const auto chosen = [](std::vector<SplitSample> samples) { return choose_split(samples); };
  EXPECT_EQ(chosen({{256, 1, 2}, {512, 2, 1.5}, {1024, 4, 4.5}, {2048, 8, 7}, {4096, 16, 13}}).min_tokens, 2048);
  EXPECT_EQ(chosen({{256, 1, 0.5}, {512, 2, 1.5}}).min_tokens, 256);
  EXPECT_EQ(chosen({{256, 1, 0.5}, {512, 2, 2}}).kind, SplitKind::none) << "the largest is not faster";
  EXPECT_EQ(chosen({}).kind, SplitKind::none);
}

}  // namespace
}  // namespace heddle
