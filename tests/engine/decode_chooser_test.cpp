// What rank 0 chooses for decode steps, and that every rank computes so.
#include "engine/decode_chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using testing::ElementsAre;

constexpr DecodeChoice kFusedInOne{.form = DecodeChoice::Form::clusters};
constexpr DecodeChoice kFusedInTwo{.form = DecodeChoice::Form::clusters, .parts = 2};
constexpr DecodeChoice kNoCluster{.form = DecodeChoice::Form::clusters, .cluster = 3};

std::filesystem::path gqa_folder() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
}

StepPlan decode_plan(std::initializer_list<int> contexts) {
  StepPlan plan;
  for (const int context : contexts) {
    const auto at = static_cast<std::int32_t>(plan.tokens.size());
    plan.tokens.push_back(1);
    plan.positions.push_back(context - 1);
    plan.sequences.push_back({.first_token = at, .num_tokens = 1, .context_len = context});
    plan.samples.push_back({.sequence = at, .row = at, .position = context, .params = {}});
  }
  return plan;
}

class DecodeChooserTest : public testing::Test {
 protected:
  DecodeChooser chooser(const DecodeTable& table, std::optional<DType> dtype = {}) const {
    const RankModels ranks = load_ranks(Checkpoint(gqa_folder()), {.dtype = dtype}, 1);
    return {table, ranks, {.step = {.max_sequences = 4, .fused_decode = true}}};
  }
};

TEST_F(DecodeChooserTest, TheFirstLineThatCoversAStepDecides) {
  const DecodeChooser choose =
      chooser({{1, 100, kFusedInOne}, {1, 1000, {}}, {1, 2000, kFusedInTwo}, {2, 100, kFusedInTwo}});
  EXPECT_EQ(choose.choose(decode_plan({100})), kFusedInOne);
  EXPECT_EQ(choose.choose(decode_plan({101})), DecodeChoice{});
  EXPECT_EQ(choose.choose(decode_plan({2000})), kFusedInTwo);
  EXPECT_EQ(choose.choose(decode_plan({2001})), DecodeChoice{});
  EXPECT_EQ(choose.choose(decode_plan({5, 100})), kFusedInTwo);
  EXPECT_EQ(choose.choose(decode_plan({5, 101})), DecodeChoice{}) << "the longest text decides";
  EXPECT_EQ(choose.choose(decode_plan({5, 5, 5})), DecodeChoice{});
  EXPECT_THAT(choose.lines(), ElementsAre("decode steps of 1 text with up to 100 tokens: one operator",
                                          "decode steps of 1 text with up to 1000 tokens: separate operators",
                                          "decode steps of 1 text with up to 2000 tokens: one operator",
                                          "other decode steps of 1 text: separate operators",
                                          "decode steps of 2 texts with up to 100 tokens: one operator",
                                          "other decode steps of 2 texts: separate operators",
                                          "decode steps of 3 to 4 texts: separate operators"));
}

TEST_F(DecodeChooserTest, StepsThatDoNotDecodeHaveSeparateOperators) {
  const DecodeChooser choose = chooser({{.choice = kFusedInOne}});
  StepPlan plan = decode_plan({5, 6});
  EXPECT_EQ(choose.choose(plan), kFusedInOne);
  plan.prefix_tokens = 1;
  EXPECT_EQ(choose.choose(plan), DecodeChoice{});
  plan.prefix_tokens = 0;
  plan.samples.pop_back();
  EXPECT_EQ(choose.choose(plan), DecodeChoice{});
  EXPECT_EQ(choose.choose({}), DecodeChoice{});
  EXPECT_EQ(choose.choose(decode_plan({1, 1, 1, 1, 1})), DecodeChoice{}) << "more than the limits have";
}

// When the choice is made, and not when a kernel is launched.
TEST_F(DecodeChooserTest, WhatTheModelDoesNotTakeIsRefusedWithAReason) {
  const DecodeChooser none = chooser({{.choice = kNoCluster}});
  EXPECT_EQ(none.choose(decode_plan({5})), DecodeChoice{});
  EXPECT_THAT(none.lines(), ElementsAre("decode steps of 1 to 4 texts: separate operators: clusters of 3 blocks, "
                                        "expected 1, 2, 4, 8 or 16"));
  const DecodeChooser next = chooser({{.choice = kNoCluster}, {.choice = kFusedInTwo}});
  EXPECT_EQ(next.choose(decode_plan({5})), kFusedInTwo);
  const DecodeChooser rounded = chooser({{.choice = kFusedInOne}}, DType::float16);
  EXPECT_THAT(rounded.lines(),
              ElementsAre("decode steps of 1 to 4 texts: separate operators: it rounds to the weights' dtype, float16, "
                          "and this model computes in float32"));
}

// As a model on a GPU answers.
class ModelThatTakesSmallClusters : public Model {
 public:
  explicit ModelThatTakesSmallClusters(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  const ModelShape& shape() const override { return model_->shape(); }
  std::string why_not_fused(const FusedDecode& decode) const override {
    return decode.choice.cluster > 8 ? "no cluster of 16 blocks fits the GPU" : model_->why_not_fused(decode);
  }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
};

TEST_F(DecodeChooserTest, ClustersThatTheGpuCannotScheduleAreRefusedWhenTheChoiceIsMade) {
  constexpr DecodeChoice kSixteens{.form = DecodeChoice::Form::clusters, .cluster = 16};
  RankModels ranks = load_ranks(Checkpoint(gqa_folder()), {}, 1);
  ranks[0].model = std::make_unique<ModelThatTakesSmallClusters>(std::move(ranks[0].model));
  const ExecutorLimits limits{.step = {.max_sequences = 2, .fused_decode = true}};
  const DecodeChooser only({{.choice = kSixteens}}, ranks, limits);
  EXPECT_EQ(only.choose(decode_plan({5})), DecodeChoice{});
  EXPECT_THAT(only.lines(), ElementsAre("decode steps of 1 to 2 texts: separate operators: no cluster of 16 blocks "
                                        "fits the GPU"));
  EXPECT_EQ(DecodeChooser({{.choice = kSixteens}, {.choice = kFusedInOne}}, ranks, limits).choose(decode_plan({5})),
            kFusedInOne);
}

TEST_F(DecodeChooserTest, SaysByWhichTimesItChose) {
  const DecodeTimes faster{.separate_seconds = 2e-3, .fused_seconds = 1e-3},
      slower{.separate_seconds = 1e-3, .fused_seconds = 2e-3};
  const DecodeTable table{{4, 100, kFusedInOne, faster}, {.choice = {}, .times = slower}};
  EXPECT_THAT(chooser(table).lines(),
              ElementsAre("decode steps of 1 to 4 texts with up to 100 tokens: one operator: 1.000 ms a step, separate "
                          "operators 2.000 ms",
                          "decode steps of 1 to 4 texts: separate operators: 1.000 ms a step, the fastest fused form "
                          "2.000 ms"));
}

TEST_F(DecodeChooserTest, SaysWhatHoldsAboveTheMostTextsOfOneOperator) {
  const RankModels ranks = load_ranks(Checkpoint(gqa_folder()), {}, 1);
  const DecodeChooser choose({{.choice = kFusedInOne}}, ranks, {.step = {.max_sequences = 40, .fused_decode = true}});
  EXPECT_THAT(choose.lines(), ElementsAre("decode steps of 1 to 16 texts: one operator",
                                          "decode steps of 17 to 40 texts: separate operators: one operator takes up "
                                          "to 16 texts"));
}

// Says what reaches a rank's model.
class WatchedModel : public Model {
 public:
  WatchedModel(std::unique_ptr<Model> model, std::vector<StepChoices>& seen) : model_(std::move(model)), seen_(seen) {}
  const ModelShape& shape() const override { return model_->shape(); }
  std::string why_not_fused(const FusedDecode& decode) const override { return model_->why_not_fused(decode); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr) seen_.push_back(step.choices);
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
  std::vector<StepChoices>& seen_;
};

std::map<std::int64_t, std::vector<std::int32_t>> answers_of(Engine& engine) {
  for (const int length : {3, 9, 14})
    engine.submit({.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(length), length), .max_tokens = 12});
  std::map<std::int64_t, std::vector<std::int32_t>> answers;
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 1000, "the engine makes no progress");
    for (const TokenOutput& output : engine.step()) answers[output.request].push_back(output.token);
  }
  return answers;
}

TEST(DecodeChoices, ReachEveryRankAndChangeNoToken) {
  Engine separate(load_ranks(Checkpoint(gqa_folder()), {}, 1), {});
  const auto expected = answers_of(separate);
  const ChoiceTables tables{.decode = {{3, 18, kFusedInTwo}, {3, 22, kFusedInOne}}};
  for (const TpMode mode : {TpMode::standard, TpMode::fused})
    for (const int ranks : {1, 2}) {
      RankModels models = load_ranks(Checkpoint(gqa_folder()), {.tp_mode = mode}, ranks);
      std::vector<std::vector<StepChoices>> seen(static_cast<std::size_t>(ranks));
      for (std::size_t rank = 0; rank < seen.size(); ++rank)
        models[rank].model = std::make_unique<WatchedModel>(std::move(models[rank].model), seen[rank]);
      {
        Engine engine(std::move(models), {.threads = 2, .tables = tables});
        EXPECT_EQ(answers_of(engine), expected) << ranks << " ranks";
      }
      std::set<DecodeChoice> chosen;
      for (const StepChoices& choices : seen.front()) {
        chosen.insert(choices.decode);
        EXPECT_FALSE(choices.decode.fused() && choices.sums != SumForm::separate);
      }
      EXPECT_EQ(chosen, (std::set<DecodeChoice>{{}, kFusedInOne, kFusedInTwo}));
      for (const auto& own : seen) EXPECT_TRUE(own == seen.front());
    }
}

}  // namespace
}  // namespace heddle
