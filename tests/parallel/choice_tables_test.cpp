// What rank 0 chooses from measured tables.
#include "parallel/choice_tables.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

const SplitKey kSmallModel{.layers = 2, .hidden = 64, .intermediate = 90, .heads = 4, .ranks = 2};
constexpr int kMany = std::numeric_limits<int>::max();

TEST(ChoiceTables, TheLineOfAStepsSizeDecides) {
  const ChoiceTables tables{
      .fused = {{8, true}, {64, false}, {kMany, true}},
      .sums = {{1000, {Algorithm::low_latency, 4, 256}}, {.choice = {Algorithm::direct, 16, 512}}}};
  const auto fused = [&](int tokens) { return choices_for(tables, tokens, 100).fused_sums; };
  EXPECT_TRUE(fused(1) && fused(8) && fused(65) && fused(1 << 20));
  EXPECT_FALSE(fused(9) || fused(64));
  const auto sum = [&](int tokens) { return sum_choice(choices_for(tables, tokens, 100)); };
  EXPECT_EQ(sum(10), (Choice{Algorithm::low_latency, 4, 256}));
  EXPECT_EQ(sum(11), (Choice{Algorithm::direct, 16, 512}));
}

TEST(ChoiceTables, WithoutTablesTheDefaultsStand) {
  EXPECT_EQ(choices_for({}, 5, 100), StepChoices{});
  EXPECT_FALSE(sum_choice({}).has_value());
}

TEST(ChoiceTables, WhatIsNoAlgorithmIsRefused) {
  for (const int number : {-2, 6, 1000})
    EXPECT_THROW(sum_choice({.sum_algorithm = static_cast<std::int16_t>(number)}), InvalidArgument) << number;
}

TEST(ChoiceTables, FusedIsChosenWhereItIsFasterByMoreThanNoise) {
  EXPECT_EQ(choose_fused({{1, 1, 0.5}, {8, 1, 0.995}, {64, 2, 3}, {512, 4, 3}}),
            (FusedTable{{1, true}, {64, false}, {kMany, true}}));
  EXPECT_EQ(choose_fused({{1, 1, 2}}), (FusedTable{{kMany, false}}));
}

TEST(ModeChoice, TakesWhatWasMeasuredToBeFasterAndNothingElse) {
  const SplitOptions from_512{.kind = SplitKind::smart, .min_tokens = 512};
  const FusedTable small{{64, true}, {kMany, false}}, never{{kMany, false}};
  EXPECT_EQ(choose_mode({}, DeviceKind::cpu).mode, TpMode::standard);
  EXPECT_EQ(choose_mode({}, DeviceKind::cuda).mode, TpMode::symmetric) << "the default is NCCL there";
  EXPECT_EQ(choose_mode({.split = SplitOptions{}, .fused = never}, DeviceKind::cpu).mode, TpMode::standard);
  EXPECT_EQ(choose_mode({.fused = small}, DeviceKind::cpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({.split = SplitOptions{}, .fused = small}, DeviceKind::cpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({.fused = small}, DeviceKind::cpu).fused, small);
  const ModeChoice woven = choose_mode({.split = from_512, .fused = small}, DeviceKind::cpu);
  EXPECT_EQ(woven.mode, TpMode::weave);
  EXPECT_EQ(woven.split.min_tokens, 512);
  EXPECT_EQ(woven.fused, small);  // small steps are whole and fused, the rest of the whole ones plain
  EXPECT_EQ(choose_mode({.split = from_512}, DeviceKind::cpu).fused, never);
}

TEST(ChoiceTables, AreFoundAgainForTheSameModelAndRanksAlone) {
  TunedStore store({}, "machine", "1");
  EXPECT_FALSE(tuned_fused(store, kSmallModel).has_value());
  const FusedTable table{{16, false}, {kMany, true}};
  put_tuned_fused(store, kSmallModel, table);
  EXPECT_EQ(tuned_fused(store, kSmallModel), table);
  SplitKey other = kSmallModel;
  other.ranks = 3;
  EXPECT_FALSE(tuned_fused(store, other).has_value());
  EXPECT_FALSE(tuned_split(store, kSmallModel).has_value()) << "of another choice";
}

TEST(ChoiceTables, WhatIsNoTableIsNotTuned) {
  const char* const bad[] = {
      "5",
      "[]",
      R"([{"fused": 1}])",
      R"([{"up_to_tokens": 4}])",
      R"([{"fused": true, "up_to_tokens": 4}])",
      R"([{"fused": true, "up_to_tokens": "four"}])",
      R"([{"fused": true, "up_to_tokens": -4}, {"fused": false}])",
      R"([{"fused": true, "up_to_tokens": 8}, {"fused": true, "up_to_tokens": 8}, {"fused": false}])",
      R"([{"fused": true}, {"fused": false}])"};
  for (const char* const value : bad) {
    TunedStore store({}, "machine", "1");
    store.put("fused_sums." + name_of(kSmallModel), nlohmann::json::parse(value));
    EXPECT_FALSE(tuned_fused(store, kSmallModel).has_value()) << value;
  }
}

}  // namespace
}  // namespace heddle
