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
      .forms = {{8, SumForm::fused}, {64, SumForm::separate}, {kMany, SumForm::sharded}},
      .sums = {{1000, {Algorithm::low_latency, 4, 256}}, {.choice = {Algorithm::direct, 16, 512}}}};
  const auto form = [&](int tokens) { return choices_for(tables, tokens, 100).sums; };
  for (const int tokens : {1, 8}) EXPECT_EQ(form(tokens), SumForm::fused);
  for (const int tokens : {9, 64}) EXPECT_EQ(form(tokens), SumForm::separate);
  for (const int tokens : {65, 1 << 20}) EXPECT_EQ(form(tokens), SumForm::sharded);
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

TEST(ChoiceTables, ALaterFormIsChosenWhereItIsFasterByMoreThanNoise) {
  EXPECT_EQ(choose_sums({{1, 1, 0.5}, {8, 1, 0.995}, {64, 2, 3}, {512, 4, 3}}),
            (SumTable{{1, SumForm::fused}, {64, SumForm::separate}, {kMany, SumForm::fused}}));
  EXPECT_EQ(choose_sums({{1, 1, 2}}), (SumTable{{kMany, SumForm::separate}}));
  EXPECT_EQ(
      choose_sums({{1, 1, 0.5, 0.6}, {8, 1, 0.9, 0.895}, {64, 1, 2, 0.9}, {512, 4, 3, 2}}),
      (SumTable{
          {8, SumForm::fused}, {64, SumForm::sharded, SumForm::separate}, {kMany, SumForm::sharded, SumForm::fused}}));
}

TEST(ChoiceTables, StepsThatCannotBeShardedHaveTheFasterOfTheOtherForms) {
  const SumTable table{{8, SumForm::fused},
                       {64, SumForm::sharded, SumForm::fused},
                       {512, SumForm::sharded, SumForm::separate},
                       {kMany, SumForm::separate}};
  EXPECT_EQ(unsharded(table), (SumTable{{64, SumForm::fused}, {kMany, SumForm::separate}}));
}

TEST(ModeChoice, TakesWhatWasMeasuredToBeFasterAndNothingElse) {
  const SplitOptions from_512{.kind = SplitKind::smart, .min_tokens = 512};
  const SumTable small{{64, SumForm::fused}, {kMany, SumForm::separate}}, never{{kMany, SumForm::separate}},
      large{{64, SumForm::fused}, {kMany, SumForm::sharded, SumForm::fused}};
  const SplitKey cpu{.hidden = 64, .device = DeviceKind::cpu}, gpu{.hidden = 64, .device = DeviceKind::cuda};
  EXPECT_EQ(choose_mode({}, cpu).mode, TpMode::standard);
  EXPECT_EQ(choose_mode({.sums = never}, gpu).mode, TpMode::symmetric) << "the default is NCCL there";
  EXPECT_EQ(choose_mode({.split = SplitOptions{}, .sums = never}, cpu).mode, TpMode::standard);
  EXPECT_EQ(choose_mode({.sums = small}, cpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({.split = SplitOptions{}, .sums = small}, cpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({.sums = small}, cpu).sums, small);
  const ModeChoice woven = choose_mode({.split = from_512, .sums = small}, cpu);
  EXPECT_EQ(woven.mode, TpMode::weave);
  EXPECT_EQ(woven.split.min_tokens, 512);
  EXPECT_EQ(woven.sums, small);  // small steps are whole and fused, the rest of the whole ones plain
  EXPECT_EQ(choose_mode({.split = from_512}, cpu).sums, never);
  const ModeChoice sharded = choose_mode({.split = from_512, .sums = large}, gpu);
  EXPECT_EQ(sharded.mode, TpMode::sequence);
  EXPECT_EQ(sharded.sums, large);
  EXPECT_EQ(sharded.split.kind, SplitKind::none);
  const SumTable small_steps{{64, SumForm::sharded, SumForm::fused}, {kMany, SumForm::separate}};
  EXPECT_EQ(choose_mode({.sums = small_steps}, cpu).mode, TpMode::sequence);
  const ModeChoice cut = choose_mode({.split = from_512, .sums = small_steps}, cpu);
  EXPECT_EQ(cut.mode, TpMode::weave);
  EXPECT_EQ(cut.sums, small);
}

TEST(ModeChoice, FusesSumsOfAllButSmallStepsOnGpusWhereTheyWereNotMeasured) {
  const SplitKey gpu{.hidden = 4096, .device = DeviceKind::cuda};
  const SplitOptions never{}, from_512{.kind = SplitKind::smart, .min_tokens = 512};
  EXPECT_EQ(choose_mode({}, gpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({}, gpu).sums, (SumTable{{128, SumForm::separate}, {kMany, SumForm::fused}}));
  EXPECT_EQ(choose_mode({.split = never}, gpu).mode, TpMode::fused);
  EXPECT_EQ(choose_mode({.split = from_512}, gpu).mode, TpMode::weave);
  EXPECT_EQ(choose_mode({}, {.hidden = 68, .device = DeviceKind::cuda}).mode, TpMode::symmetric)
      << "rows that the operator refuses";
}

TEST(ChoiceTables, UntunedSmallStepsOfSequenceAreFusedOnGpus) {
  for (const TpMode mode : {TpMode::standard, TpMode::fused, TpMode::weave})
    EXPECT_TRUE(untuned_sums(mode, DeviceKind::cuda).empty()) << name_of(mode);
  EXPECT_TRUE(untuned_sums(TpMode::sequence, DeviceKind::cpu).empty());
  const ChoiceTables tables{.forms = untuned_sums(TpMode::sequence, DeviceKind::cuda), .sums = {}};
  for (const int tokens : {1, 2047}) EXPECT_EQ(choices_for(tables, tokens, 100).sums, SumForm::fused);
  for (const int tokens : {2048, 1 << 20}) EXPECT_EQ(choices_for(tables, tokens, 100).sums, SumForm::sharded);
}

TEST(ChoiceTables, AreFoundAgainForTheSameModelAndRanksAlone) {
  TunedStore store({}, "machine", "1");
  EXPECT_FALSE(tuned_sums(store, kSmallModel).has_value());
  const SumTable table{{16, SumForm::separate}, {kMany, SumForm::sharded, SumForm::fused}};
  put_tuned_sums(store, kSmallModel, table);
  EXPECT_EQ(tuned_sums(store, kSmallModel), table);
  SplitKey other = kSmallModel;
  other.ranks = 3;
  EXPECT_FALSE(tuned_sums(store, other).has_value());
  EXPECT_FALSE(tuned_split(store, kSmallModel).has_value()) << "of another choice";
}

TEST(ChoiceTables, WhatIsNoTableIsNotTuned) {
  const char* const bad[] = {
      "5",
      "[]",
      R"([{"form": 1}])",
      R"([{"up_to_tokens": 4}])",
      R"([{"form": "of_mode"}])",
      R"([{"form": "sharded"}])",
      R"([{"form": "fused", "unsharded": "fused"}])",
      R"([{"form": "fused", "up_to_tokens": 4}])",
      R"([{"form": "fused", "up_to_tokens": "four"}])",
      R"([{"form": "fused", "up_to_tokens": -4}, {"form": "separate"}])",
      R"([{"form": "fused", "up_to_tokens": 8}, {"form": "fused", "up_to_tokens": 8}, {"form": "separate"}])",
      R"([{"form": "fused"}, {"form": "separate"}])"};
  for (const char* const value : bad) {
    TunedStore store({}, "machine", "1");
    store.put("sums." + name_of(kSmallModel), nlohmann::json::parse(value));
    EXPECT_FALSE(tuned_sums(store, kSmallModel).has_value()) << value;
  }
}

}  // namespace
}  // namespace heddle
