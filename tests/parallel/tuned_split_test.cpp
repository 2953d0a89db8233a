#include "parallel/tuned_split.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "base/file.h"
#include "machine/tuned_store.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

const SplitKey kModel{
    .layers = 80, .hidden = 8192, .intermediate = 28672, .heads = 64, .kv_heads = 8, .head_dim = 128, .ranks = 4};

// `pairs` times the same ratio, but for the last one, which is `last`.
SplitSample sample_of(int tokens, double ratio, double last, int pairs = 9) {
  SplitSample sample{.tokens = tokens, .prefix_tokens = tokens / 2, .whole_seconds = {}, .split_seconds = {}};
  sample.whole_seconds.assign(static_cast<std::size_t>(pairs), 2.0);
  sample.split_seconds.assign(static_cast<std::size_t>(pairs), 2.0 * ratio);
  sample.split_seconds.back() = 2.0 * last;
  return sample;
}
SplitSample sample_of(int tokens, double ratio) {
  return sample_of(tokens, ratio, ratio);
}
SplitSample not_cut(int tokens) {
  return {.tokens = tokens, .whole_seconds = {2.0}, .split_seconds = {}};
}

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

// A trial in float32, or with ranks that share a GPU, must not decide for others.
TEST(TunedSplit, WhatChangesAStepsTimesIsAnotherKey) {
  SplitKey on_gpus = kModel;
  on_gpus.device = DeviceKind::cuda;
  on_gpus.transfer_sms = 8;
  TunedStore store({}, "machine", "1");
  put_tuned_split(store, on_gpus, {.kind = SplitKind::smart, .min_tokens = 2048});
  ASSERT_TRUE(tuned_split(store, on_gpus).has_value());
  const auto differs_by = [&](auto change) {
    SplitKey other = on_gpus;
    change(other);
    return !tuned_split(store, other).has_value();
  };
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.dtype = "float32"; }));
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.kv_heads = 64; }));
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.head_dim = 64; }));
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.shared = true; }));
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.transfer_sms = 16; }));
  EXPECT_TRUE(differs_by([](SplitKey& key) { key.device = DeviceKind::cpu; }));
}

TEST(TunedSplit, UntunedNoStepIsCutWhereThatMayBeSlower) {
  SplitKey key = kModel;
  EXPECT_EQ(untuned_split(key).kind, SplitKind::none) << "ranks of the CPU share its cores";
  key.device = DeviceKind::cuda;
  EXPECT_EQ(untuned_split(key).min_tokens, kUntunedSplitTokens);
  key.experts = 8;
  EXPECT_EQ(untuned_split(key).kind, SplitKind::none) << "experts' weights are read for each part";
}

TEST(TunedSplit, NeverFasterIsAResultToo) {
  TunedStore store({}, "machine", "1");
  put_tuned_split(store, kModel, {});
  ASSERT_TRUE(tuned_split(store, kModel).has_value());
  EXPECT_EQ(tuned_split(store, kModel)->kind, SplitKind::none);
}

// In the file, in place of a number that was found there.
TEST(TunedSplit, WhatIsNoNumberOfTokensIsNotTuned) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "tuned.json";
  TunedStore written(file, "machine", "1");
  put_tuned_split(written, kModel, {.kind = SplitKind::smart, .min_tokens = 2049});
  const std::string good = read_file(file, 1 << 20);
  const auto found_as = [&](const std::string& value) {
    write_file(file, std::regex_replace(good, std::regex("\\b2049\\b"), value));
    return tuned_split(TunedStore(file, "machine", "1"), kModel);
  };
  ASSERT_TRUE(found_as("2050").has_value());
  EXPECT_EQ(found_as("2050")->min_tokens, 2050);
  for (const char* const value : {"-5", "1e18", "\"many\"", "null"}) EXPECT_FALSE(found_as(value).has_value()) << value;
}

TEST(TunedSplit, NoMeasuredSizeBecomesSlower) {
  const auto from = [](const std::vector<SplitSample>& samples) { return choose_split(samples).value().min_tokens; };
  EXPECT_EQ(from({sample_of(256, 2), sample_of(512, 0.7), sample_of(1024, 1.1), sample_of(2048, 0.9)}), 2048);
  EXPECT_EQ(from({sample_of(256, 0.5), sample_of(512, 0.75)}), 256);
  EXPECT_EQ(choose_split({sample_of(256, 0.5), sample_of(512, 1)})->kind, SplitKind::none)
      << "the largest is not faster";
}

TEST(TunedSplit, IsChosenWhereTheWholeIntervalIsBelow) {
  EXPECT_EQ(choose_split({sample_of(256, 0.9, 1.2)})->min_tokens, 256) << "one of nine pairs lies outside";
  EXPECT_EQ(choose_split({sample_of(256, 0.9, 1.2, 5)})->kind, SplitKind::none) << "the interval is all five";
  SplitSample noisy = sample_of(256, 0.9, 1.2);
  noisy.split_seconds.front() = 2.4;
  EXPECT_EQ(choose_split({noisy})->kind, SplitKind::none);
}

TEST(TunedSplit, WhatCannotBeCutOrHasTooFewPairsSaysNothing) {
  EXPECT_FALSE(choose_split({}).has_value());
  EXPECT_FALSE(choose_split({not_cut(8)}).has_value());
  EXPECT_FALSE(choose_split({sample_of(256, 0.5, 0.5, kFewestPairs - 1)}).has_value());
  EXPECT_EQ(choose_split({not_cut(8), sample_of(256, 0.5)})->min_tokens, 256);
}

TEST(PairedRatio, HasAnIntervalOfOrderStatistics) {
  SplitSample sample{.tokens = 1, .prefix_tokens = 1, .whole_seconds = {}, .split_seconds = {}};
  for (const double ratio : {0.3, 0.9, 0.1, 0.5, 0.7, 0.2, 0.8, 0.4, 0.6}) {
    sample.whole_seconds.push_back(4);
    sample.split_seconds.push_back(4 * ratio);
  }
  const PairedRatio nine = paired_ratio(sample);  // 2 (1 + 9) / 512 lie outside of the second to the eighth
  EXPECT_DOUBLE_EQ(nine.median, 0.5);
  EXPECT_DOUBLE_EQ(nine.low, 0.2);
  EXPECT_DOUBLE_EQ(nine.high, 0.8);
  EXPECT_DOUBLE_EQ(nine.confidence, 1 - 20.0 / 512);
  sample.whole_seconds.resize(2);
  sample.split_seconds.resize(2);
  EXPECT_DOUBLE_EQ(paired_ratio(sample).confidence, 0.5);
}

}  // namespace
}  // namespace heddle
