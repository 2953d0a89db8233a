// Ranks that share one GPU, as threads of this process: they compute what one rank of it computes. Skipped without a GPU.
// The goldens of such ranks are cases of llama_golden_test.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/rank_group.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "gpu_here.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

constexpr int kSharedVocabulary = 128256;

class SharedGpu : public testing::Test {
 protected:
  void SetUp() override {
    prepare_shared_gpus(std::vector<Device>(2, kFirstGpu));
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  const SyntheticModel model_{*parse_synthetic_name("synth:llama-3-8b,layers=2")};  // 32 heads, 8 KV heads
  const ExecutorLimits limits_{
      .step = {.max_tokens = 512, .max_sequences = 24, .max_samples = 32, .max_pages_per_sequence = 8},
      .page_size = 64,
      .num_pages = 64};

  RankModels ranks(int count, std::chrono::nanoseconds deadline = std::chrono::seconds(20)) const {
    return load_ranks(model_, {.device = kFirstGpu}, count, {.deadline = deadline});
  }
  RankModels ranks_in(TpMode mode, int count) const { return ranks_in(mode, count, limits_.step); }
  RankModels ranks_in(TpMode mode, int count, const StepLimits& steps) const {
    return load_ranks(model_, {.device = kFirstGpu, .tp_mode = mode}, count,
                      {.deadline = std::chrono::seconds(20), .steps = steps});
  }
};

class RanksOnOneGpu : public SharedGpu, public testing::WithParamInterface<int> {};
class RankFaultsOnOneGpu : public SharedGpu {};

// Of a sequence that has `before` tokens, `count` more.
struct NewTokens {
  int before, count;
};

// Logits of each sequence's last token.
StepPlan plan_of(const std::vector<NewTokens>& sequences, int pages) {
  StepPlan plan;
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    const auto& [before, count] = sequences[static_cast<std::size_t>(i)];
    const auto first = static_cast<std::int32_t>(plan.tokens.size());
    plan.sequences.push_back({.first_token = first,
                              .num_tokens = count,
                              .context_len = before + count,
                              .first_page = static_cast<std::int32_t>(plan.pages.size()),
                              .num_pages = pages});
    for (int page = 0; page < pages; ++page) plan.pages.push_back(pages * i + page);
    for (int j = 0; j < count; ++j) {
      plan.tokens.push_back((before + j) * 1009 % kSharedVocabulary + i);
      plan.positions.push_back(before + j);
    }
    plan.samples.push_back({.sequence = i, .row = first + count - 1, .position = before + count, .params = {}});
  }
  return plan;
}
StepPlan plan_of(int num_sequences, int before, int count, int pages = 2) {
  return plan_of(std::vector<NewTokens>(static_cast<std::size_t>(num_sequences), {before, count}), pages);
}

std::vector<std::vector<float>> rows_of(const Tensor& logits) {
  std::vector<std::vector<float>> rows;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const auto values = logits_row(logits, row);
    rows.emplace_back(values.begin(), values.end());
  }
  return rows;
}

enum class Cut { none, halves };

// Prompts in one large step (cuBLASLt), more tokens of them, and decode steps, each size computed, recorded and replayed.
std::vector<std::vector<float>> logits_of_course(RankGroup& group, Cut cut = Cut::none) {
  std::vector<std::vector<float>> all;
  const auto run = [&](StepPlan plan) {
    if (cut == Cut::halves) plan.prefix_tokens = static_cast<std::int32_t>(plan.tokens.size() / 2);  // 0 of one token
    for (auto& row : rows_of(group.run(plan))) all.push_back(std::move(row));
  };
  run(plan_of(20, 0, 25));
  for (int step = 0; step < 5; ++step) run(plan_of(20, 25 + step, 1));
  for (int step = 0; step < 5; ++step) run(plan_of(3, 30 + step, 1));
  for (int step = 0; step < 5; ++step) run(plan_of(1, 35 + step, 1));
  run(plan_of(3, 35, 30));
  return all;
}

// Where two courses differ: "row 41: 32064 from column 0 to 32063", at most ten of them.
std::string differences(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  std::string text;
  int left = 10;
  for (std::size_t row = 0; row < a.size(); ++row) {
    std::size_t count = 0, first = 0, last = 0;
    for (std::size_t column = 0; column < a[row].size(); ++column) {
      if (a[row][column] == b[row][column]) continue;
      if (count++ == 0) first = column;
      last = column;
    }
    if (count > 0 && left-- > 0) text += fmt::format("row {}: {} from column {} to {}\n", row, count, first, last);
  }
  return text;
}

// Weights and activations are bfloat16, and so is what each rank adds to the residual: logits with a deviation near 3
// differ by hundredths, as a GPU's do from a CPU's (llama_gpu_test.cpp).
void expect_near(const std::vector<std::vector<float>>& found, const std::vector<std::vector<float>>& expected,
                 int ranks) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0, sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = 0; j < found[i].size(); ++j) {
      const double distance = std::abs(static_cast<double>(found[i][j]) - expected[i][j]);
      if (!(distance <= largest)) largest = distance;  // NaN sticks
      sum += distance * distance;
      ++count;
    }
  const double deviation = std::sqrt(sum / static_cast<double>(count));
  std::printf("%d ranks: largest difference %.4f, root of the mean square %.5f\n", ranks, largest, deviation);
  EXPECT_LE(deviation, 0.03);
  EXPECT_LE(largest, 0.4);
}

TEST_P(RanksOnOneGpu, GiveTheLogitsOfOneRank) {
  RankGroup one(ranks(1), limits_, 1), several(ranks(GetParam()), limits_, 1);
  expect_near(logits_of_course(several), logits_of_course(one), GetParam());
}

// Norms divided by token, transfers within the GEMMs; steps of few tokens have ranks without any.
TEST_P(RanksOnOneGpu, GiveTheLogitsOfOneRankWhereEachNormalisesItsTokensAlone) {
  RankGroup one(ranks(1), limits_, 1), several(ranks_in(TpMode::sequence, GetParam()), limits_, 1);
  const auto expected = logits_of_course(one), found = logits_of_course(several);
  expect_near(found, expected, GetParam());
  for (int course = 0; course < 3; ++course)
    EXPECT_EQ(differences(logits_of_course(several), found), "") << course;  // all steps replayed
}

// Two lanes on each rank's share of the SMs: sums over ranks beside computation, in graphs too.
TEST_P(RanksOnOneGpu, GiveTheLogitsOfOneRankInTwoParts) {
  ExecutorLimits in_parts = limits_;
  in_parts.step.max_parts = kMostParts;
  RankGroup one(ranks(1), limits_, 1), several(ranks(GetParam()), in_parts, 1);
  const auto expected = logits_of_course(one), found = logits_of_course(several, Cut::halves);
  expect_near(found, expected, GetParam());
  for (int course = 0; course < 5; ++course)
    EXPECT_EQ(differences(logits_of_course(several, Cut::halves), found), "") << course;  // the same bits again
}

TEST_P(RanksOnOneGpu, GiveTheSameBitsAgain) {
  RankGroup first(ranks(GetParam()), limits_, 1), second(ranks(GetParam()), limits_, 1);
  const auto expected = logits_of_course(first);
  EXPECT_EQ(differences(logits_of_course(second), expected), "");
  for (int course = 0; course < 5; ++course)
    EXPECT_EQ(differences(logits_of_course(first), expected), "") << course;  // all steps replayed
}

// Keys and values divided by position, in pages of few tokens, so that short contexts reach several ranks.
struct GridOnOneGpu {
  int tensor_ranks, context_ranks;
  TpMode mode = TpMode::standard;

  int ranks() const { return tensor_ranks * context_ranks; }
  std::string text() const {
    return fmt::format("tp{}_cp{}{}", tensor_ranks, context_ranks,
                       mode == TpMode::standard ? "" : fmt::format("_{}", name_of(mode)));
  }
};

class ContextsOnOneGpu : public SharedGpu, public testing::WithParamInterface<GridOnOneGpu> {
 protected:
  static constexpr int kPageOfRank = 16;

  RankModels grid(const StepLimits& steps) const {
    const auto& [tensor_ranks, context_ranks, mode] = GetParam();
    return load_ranks(model_, {.device = kFirstGpu, .tp_mode = mode, .context_ranks = context_ranks},
                      GetParam().ranks(), {.deadline = std::chrono::seconds(20), .steps = steps});
  }
  // With pages of as many tokens for the one rank and for the grid, whose ranks have a part of each.
  ExecutorLimits limits(int num_pages, int pages_of_sequence, int max_tokens) const {
    ExecutorLimits limits = limits_;
    limits.page_size = kPageOfRank * GetParam().context_ranks;
    limits.num_pages = num_pages;
    limits.step.max_pages_per_sequence = pages_of_sequence;
    limits.step.max_tokens = max_tokens;
    return limits;
  }
};

using LogitRows = std::vector<std::vector<float>>;

// Prompts, decode steps computed, recorded and replayed, and more tokens of prompts; contexts of fewer tokens than ranks.
LogitRows logits_of_contexts(RankGroup& group) {
  constexpr int kPages = 5;
  LogitRows all;
  const auto run = [&](const StepPlan& plan) {
    for (auto& row : rows_of(group.run(plan))) all.push_back(std::move(row));
  };
  for (int step = 0; step < 5; ++step) run(plan_of(3, step, 1, kPages));
  run(plan_of(10, 0, 45, kPages));
  for (int step = 0; step < 5; ++step) run(plan_of(10, 45 + step, 1, kPages));
  for (int step = 0; step < 5; ++step) run(plan_of(1, 50 + step, 1, kPages));
  run(plan_of(3, 50, 25, kPages));
  run(plan_of(2, 75, 3, kPages));
  run(plan_of({{78, 1}, {0, 2}, {50, 28}, {50, 1}, {0, 1}, {40, 20}}, kPages));
  return all;
}

TEST_P(ContextsOnOneGpu, GiveTheLogitsOfOneRankAndTheSameBitsAgain) {
  const ExecutorLimits of_all = limits(64, 5, 512);
  RankGroup one(ranks(1), of_all, 1), several(grid(of_all.step), of_all, 1);
  const LogitRows expected = logits_of_contexts(one), found = logits_of_contexts(several);
  expect_near(found, expected, GetParam().ranks());
  for (int course = 0; course < 3; ++course)
    EXPECT_EQ(differences(logits_of_contexts(several), found), "") << course;  // all steps replayed
}

// In chunks, each of more rows than parts of ranks have room for at once.
TEST_P(ContextsOnOneGpu, APromptLongerThanOneRanksCacheRuns) {
  constexpr int kChunk = 600, kPrompt = 2 * kChunk;
  const int pages = kPrompt / (kPageOfRank * GetParam().context_ranks) + 1;
  ASSERT_LT(pages * kPageOfRank, kPrompt) << "a rank could hold it";
  const ExecutorLimits of_all = limits(pages, pages, kChunk);
  RankGroup one(ranks(1), of_all, 1), several(grid(of_all.step), of_all, 1);
  const auto course = [&](RankGroup& group) {
    LogitRows all;
    for (int before = 0; before < kPrompt; before += kChunk)
      for (auto& row : rows_of(group.run(plan_of(1, before, kChunk, pages)))) all.push_back(std::move(row));
    for (int step = 0; step < 4; ++step)
      for (auto& row : rows_of(group.run(plan_of(1, kPrompt + step, 1, pages)))) all.push_back(std::move(row));
    return all;
  };
  expect_near(course(several), course(one), GetParam().ranks());
}

INSTANTIATE_TEST_SUITE_P(, ContextsOnOneGpu,
                         testing::Values(GridOnOneGpu{1, 2}, GridOnOneGpu{1, 3}, GridOnOneGpu{1, 4}, GridOnOneGpu{2, 2},
                                         GridOnOneGpu{2, 2, TpMode::fused}, GridOnOneGpu{2, 2, TpMode::sequence},
                                         GridOnOneGpu{2, 2, TpMode::weave}),
                         [](const auto& test) { return test.param.text(); });

// A mode's way to add what blocks leave.
struct ModeOnOneGpu {
  TpMode mode;
  int ranks;
  Cut cut = Cut::none;
  std::optional<AllReduceNormRegime> regime = {};  // of all steps
};

class ModesOnOneGpu : public SharedGpu, public testing::WithParamInterface<ModeOnOneGpu> {
 protected:
  RankModels ranks_of(const ModeOnOneGpu& mode, const StepLimits& steps) const {
    RankModels ranks = ranks_in(mode.mode, mode.ranks, steps);
    if (mode.regime)
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        ranks[rank].world->all_reduce_norm(static_cast<int>(rank))->force(mode.regime);
    return ranks;
  }
};

// By themselves prompts have two-phase sums, steps of few tokens one-shot ones. Pipelined ones are direct, as the rows of a step
// are symmetric. Afterwards all steps are replayed, and another group's are computed.
TEST_P(ModesOnOneGpu, GiveTheLogitsOfOneRankAndTheSameBitsAgain) {
  const Cut cut = GetParam().cut;
  ExecutorLimits limits = limits_;
  if (cut == Cut::halves) limits.step.max_parts = kMostParts;
  RankGroup one(ranks(1), limits_, 1), several(ranks_of(GetParam(), limits.step), limits, 1);
  const auto expected = logits_of_course(one), found = logits_of_course(several, cut);
  expect_near(found, expected, GetParam().ranks);
  for (int course = 0; course < 3; ++course)
    EXPECT_EQ(differences(logits_of_course(several, cut), found), "") << course;
  RankGroup others(ranks_of(GetParam(), limits.step), limits, 1);
  EXPECT_EQ(differences(logits_of_course(others, cut), found), "");
}

constexpr AllReduceNormRegime kDirect = AllReduceNormRegime::pipelined;

INSTANTIATE_TEST_SUITE_P(, ModesOnOneGpu,
                         testing::Values(ModeOnOneGpu{TpMode::symmetric, 2}, ModeOnOneGpu{TpMode::symmetric, 4},
                                         ModeOnOneGpu{TpMode::fused, 2}, ModeOnOneGpu{TpMode::fused, 4},
                                         ModeOnOneGpu{TpMode::weave, 2, Cut::halves},
                                         ModeOnOneGpu{TpMode::weave, 4, Cut::halves},
                                         ModeOnOneGpu{TpMode::fused, 2, Cut::none, kDirect},
                                         ModeOnOneGpu{TpMode::fused, 4, Cut::none, kDirect},
                                         ModeOnOneGpu{TpMode::weave, 2, Cut::halves, kDirect},
                                         ModeOnOneGpu{TpMode::weave, 4, Cut::halves, kDirect}),
                         [](const auto& test) {
                           const ModeOnOneGpu& mode = test.param;
                           return fmt::format("{}_with_{}_ranks{}", name_of(mode.mode), mode.ranks,
                                              mode.regime ? fmt::format("_{}", name_of(*mode.regime)) : "");
                         });

// Throws in the given step of its rank, or lets its host sleep there.
class FaultyModel : public Model {
 public:
  FaultyModel(std::unique_ptr<Model> model, int step, bool hangs)
      : model_(std::move(model)), steps_left_(step), hangs_(hangs) {}

  const ModelShape& shape() const override { return model_->shape(); }
  Device device() const override { return model_->device(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr && armed && --steps_left_ == 0) {
      if (!hangs_) throw Failure("the GPU's fan is stuck");
      std::this_thread::sleep_for(std::chrono::seconds(8));
    }
    return model_->run(step, kv, arena, execution);
  }

  static inline std::atomic<bool> armed = false;  // not in warm-ups

 private:
  std::unique_ptr<Model> model_;
  int steps_left_;
  bool hangs_;
};

std::string error_of(RankModels ranks, int faulty, int step, bool hangs, const ExecutorLimits& limits) {
  std::unique_ptr<Model>& model = ranks[static_cast<std::size_t>(faulty)].model;
  model = std::make_unique<FaultyModel>(std::move(model), step, hangs);
  FaultyModel::armed = false;
  try {
    RankGroup group(std::move(ranks), limits, 1);
    FaultyModel::armed = true;
    logits_of_course(group);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no error";
}

TEST_F(RankFaultsOnOneGpu, AFaultOfOneRankEndsAllAndIsNamed) {
  for (const int faulty : {0, 1})
    for (const int step : {1, 4}) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_THAT(error_of(ranks(2), faulty, step, false, limits_),
                  testing::HasSubstr("rank " + std::to_string(faulty) + ": "));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15)) << "the deadline is 20 s";
    }
}

TEST_F(RankFaultsOnOneGpu, AHungRankIsNamedAtTheDeadline) {
  EXPECT_THAT(error_of(ranks(2, std::chrono::seconds(2)), 1, 2, true, limits_), testing::HasSubstr("rank 1"));
}

INSTANTIATE_TEST_SUITE_P(, RanksOnOneGpu, testing::Values(2, 4, 8),
                         [](const auto& test) { return "with_" + std::to_string(test.param) + "_ranks"; });

}  // namespace
}  // namespace heddle
