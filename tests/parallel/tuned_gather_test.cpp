#include "parallel/tuned_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "machine/tuned_store.h"
#include "parallel/choice_tables.h"

namespace heddle {
namespace {

using Form = GatherChoice::Form;

const GatherKey kGateUp{.n = 57344, .k = 8192, .dtype = "bfloat16", .ranks = 4};
const char* const kStoredName = "all_gather_linear.57344n.8192k.bfloat16.tp4.cpu";

const GatherTable kTable{
    {.up_to_rows = 64, .choice = {.form = Form::bsp}, .microseconds = 40.5, .untuned_microseconds = 44},
    {.choice = {.form = Form::pull, .tile = 2, .transfer_sms = 8}, .microseconds = 90, .untuned_microseconds = 95.25}};

TEST(TunedGather, IsFoundAgainForTheSameGemmAndRanksAlone) {
  TunedStore store({}, "machine", "1");
  EXPECT_FALSE(tuned_gathers(store, kGateUp).has_value());
  put_tuned_gathers(store, kGateUp, kTable);
  EXPECT_EQ(tuned_gathers(store, kGateUp), kTable);
  const auto differs_by = [&](auto change) {
    GatherKey other = kGateUp;
    change(other);
    return !tuned_gathers(store, other).has_value();
  };
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.n = 28672; }));
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.k = 4096; }));
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.dtype = "float32"; }));
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.ranks = 2; }));
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.device = DeviceKind::cuda; }));
  EXPECT_TRUE(differs_by([](GatherKey& key) { key.shared = true; }));
}

TEST(TunedGather, WhatIsNoTableIsNotTuned) {
  for (const char* value : {
           R"("push")",
           R"([])",
           R"([1])",
           R"([{"variant": "push", "tile": -1}])",
           R"([{"variant": "shove", "tile": -1, "transfer_sms": 4}])",
           R"([{"variant": "push", "tile": 99, "transfer_sms": 4}])",
           R"([{"variant": "push", "tile": -1, "transfer_sms": 0}])",
           R"([{"variant": "push", "tile": -1, "transfer_sms": 4, "up_to_rows": 8}])",
           R"([{"variant": "push", "tile": -1, "transfer_sms": 4, "up_to_rows": 8},
               {"variant": "pull", "tile": -1, "transfer_sms": 4, "up_to_rows": 4},
               {"variant": "push", "tile": -1, "transfer_sms": 4}])",
       }) {
    TunedStore store({}, "machine", "1");
    store.put(kStoredName, nlohmann::json::parse(value));
    EXPECT_FALSE(tuned_gathers(store, kGateUp).has_value()) << value;
  }
}

TEST(TunedGather, AnotherChoiceIsTakenWhereItIsFasterByMoreThanNoise) {
  const GatherTable table = choose_gathers(
      {{.rows = 8, .times = {{{.form = Form::push}, 100}, {{.form = Form::bsp}, 99.5}}},
       {.rows = 64, .times = {{{.form = Form::push}, 100}, {{.form = Form::bsp}, 90}, {{.form = Form::pull}, 80}}},
       {.rows = 512, .times = {{{.form = Form::push}, 100}, {{.form = Form::copy}, 98}}}});
  EXPECT_EQ(gather_for(table, 1).form, Form::push);
  EXPECT_EQ(gather_for(table, 8).form, Form::push);
  EXPECT_EQ(gather_for(table, 9).form, Form::pull);
  EXPECT_EQ(gather_for(table, 512).form, Form::copy);
  EXPECT_EQ(gather_for(table, 1 << 20).form, Form::copy);
  EXPECT_EQ(table[1].microseconds, 80);
  EXPECT_EQ(table[1].untuned_microseconds, 100);
}

TEST(TunedGather, StepsTakeTheTableOfEachGemmAndUntunedOnesPush) {
  EXPECT_EQ(choices_for({}, 5, 100).qkv_gather, GatherChoice{});
  const ChoiceTables tables{.forms = {}, .gate_up_gather = kTable};
  EXPECT_EQ(choices_for(tables, 65, 100).qkv_gather, GatherChoice{});
  EXPECT_EQ(choices_for(tables, 64, 100).gate_up_gather.form, Form::bsp);
  EXPECT_EQ(choices_for(tables, 65, 100).gate_up_gather, kTable[1].choice);
  const ChoiceTables fused{.forms = {{.form = SumForm::fused}}, .gate_up_gather = kTable};
  EXPECT_EQ(choices_for(fused, 65, 100).gate_up_gather, GatherChoice{}) << "its steps gather nothing";
}

TEST(TunedGather, TheSearchBeginsWithTheUntunedChoiceAndTriesEachOnce) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const int rows : {1, 512, 513}) {
      std::vector<GatherChoice> choices = gather_choices({.ranks = 1, .device = device}, rows);
      EXPECT_EQ(choices.front(), GatherChoice{});
      std::ranges::sort(choices);
      EXPECT_EQ(std::ranges::adjacent_find(choices), choices.end());
      EXPECT_EQ(choices.size() > 4, device == DeviceKind::cuda && rows > 512) << "tiles and SMs matter there alone";
    }
}

TEST(TunedGather, TheSearchLeavesOutWhatRanksWouldNotRunAsItIsNamed) {
  const auto has_bsp = [](const GatherKey& key, int rows) {
    return std::ranges::any_of(gather_choices(key, rows), [](const GatherChoice& c) { return c.form == Form::bsp; });
  };
  EXPECT_TRUE(has_bsp({.ranks = 3}, 99));
  EXPECT_FALSE(has_bsp({.ranks = 3}, 100)) << "an all-gather takes pieces of one length";
  for (const GatherChoice& choice : gather_choices({.ranks = 2, .device = DeviceKind::cuda, .shared = true}, 1024))
    EXPECT_TRUE(choice.tile < 0 || kGatherTiles[choice.tile].cluster == 1) << text_of(choice);
}

TEST(TunedGather, AChoiceIsNamedByWhatDiffersFromTheUntunedOne) {
  EXPECT_EQ(text_of(GatherChoice{}), "push");
  EXPECT_EQ(text_of({.form = Form::bsp}), "bsp");
  EXPECT_EQ(text_of({.form = Form::pull, .transfer_sms = 8}), "pull, 8 SMs");
  EXPECT_EQ(text_of({.form = Form::copy, .tile = 1}), "copy, tile 128 x 224");
}

}  // namespace
}  // namespace heddle
