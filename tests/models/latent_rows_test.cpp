// Which rows latent attention computes in which way.
#include "layers/latent_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

namespace heddle {
namespace {

using testing::ElementsAre;

constexpr int kMost = 10, kLongest = 1000;
constexpr StepLimits kRowLimits{
    .max_tokens = 100, .max_sequences = 8, .max_samples = 8, .max_pages_per_sequence = 4, .max_parts = 2};

// New tokens of sequences that have 7 in the cache.
StepPlan plan_of_new(const std::vector<int>& new_tokens) {
  StepPlan plan;
  for (const int count : new_tokens) {
    plan.sequences.push_back({.first_token = static_cast<std::int32_t>(plan.tokens.size()),
                              .num_tokens = count,
                              .context_len = 7 + count,
                              .first_page = static_cast<std::int32_t>(plan.pages.size()),
                              .num_pages = 1});
    plan.pages.push_back(static_cast<std::int32_t>(plan.sequences.size()));
    for (int i = 0; i < count; ++i) {
      plan.tokens.push_back(i);
      plan.positions.push_back(7 + i);
    }
  }
  return plan;
}

struct SeenRun {
  LatentWay way;
  std::int64_t first_row, num_rows;
  int num_sequences, context_len, first_page;  // the last two of the first sequence

  friend bool operator==(const SeenRun&, const SeenRun&) = default;
};

// Also checks that each run's arrays are those of a step by itself.
std::vector<SeenRun> runs_of(const StepTensors& step, bool has_arrays = true) {
  std::vector<SeenRun> runs;
  std::int64_t next_row = 0;
  for_each_run(step, {.most_absorbed = kMost, .longest_context = kLongest}, [&](const LatentRun& run) {
    EXPECT_EQ(run.first_row, next_row);
    next_row += run.num_rows;
    const auto is_alone = [&](const PagedSequences& sequences, std::int64_t num_rows) {
      EXPECT_EQ(sequences.query_start[0], 0);
      EXPECT_EQ(sequences.query_start[sequences.num_sequences], num_rows);
    };
    const int count = run.expanded.count;
    EXPECT_EQ(run.way == LatentWay::expanded, count > 0);
    if (has_arrays && count == 0) is_alone(run.sequences, run.num_rows);
    if (has_arrays)
      for (int i = 0; i < count; ++i) {
        const ExpandedSequence& sequence = run.expanded[i];
        is_alone(run.alone(i), sequence.num_tokens);
        EXPECT_EQ(run.alone(i).context_len[0], sequence.num_keys);
        EXPECT_EQ(sequence.first_query, sequence.num_keys - sequence.num_tokens);
      }
    runs.push_back({run.way, run.first_row, run.num_rows, count > 0 ? count : run.sequences.num_sequences,
                    count > 0 ? run.expanded[0].num_keys : 0, has_arrays ? run.sequences.page_table[0] : 0});
  });
  EXPECT_EQ(next_row, step.num_tokens);
  return runs;
}

TEST(LatentRows, ThresholdIsWhereBothWaysMultiplyAsMuch) {
  EXPECT_EQ(most_absorbed_tokens({.nope = 128, .rope = 64, .value = 128, .latent = 512}), 170);
  EXPECT_EQ(most_absorbed_tokens({.nope = 16, .rope = 8, .value = 16, .latent = 32}), 32);
  EXPECT_EQ(most_absorbed_tokens({.nope = 32, .rope = 8, .value = 32, .latent = 32}), std::numeric_limits<int>::max());
}

TEST(LatentRows, ShortSequencesAreOneRun) {
  std::vector<std::byte> memory(placed_bytes(kRowLimits));
  const StepPlan plan = plan_of_new({1, 10, 3});
  EXPECT_THAT(runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
              ElementsAre(SeenRun{LatentWay::absorbed, 0, 14, 3, 0, 1}));
}

TEST(LatentRows, LongSequencesAreExpandedInAnyOrder) {
  std::vector<std::byte> memory(placed_bytes(kRowLimits));
  StepPlan plan = plan_of_new({1, 2, 11, 3, 20});
  EXPECT_THAT(
      runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
      ElementsAre(SeenRun{LatentWay::absorbed, 0, 3, 2, 0, 1}, SeenRun{LatentWay::expanded, 3, 11, 1, 18, 3},
                  SeenRun{LatentWay::absorbed, 14, 3, 1, 0, 4}, SeenRun{LatentWay::expanded, 17, 20, 1, 27, 5}));
  plan = plan_of_new({30, 1});
  EXPECT_THAT(runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
              ElementsAre(SeenRun{LatentWay::expanded, 0, 30, 1, 37, 1}, SeenRun{LatentWay::absorbed, 30, 1, 1, 0, 2}));
}

TEST(LatentRows, LongSequencesShareAPieceOfKeys) {
  std::vector<std::byte> memory(placed_bytes(kRowLimits));
  StepPlan plan = plan_of_new({2, 11, 12, 30, 1, 13});
  EXPECT_THAT(
      runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
      ElementsAre(SeenRun{LatentWay::absorbed, 0, 2, 1, 0, 1}, SeenRun{LatentWay::expanded, 2, 53, 3, 18, 2},
                  SeenRun{LatentWay::absorbed, 55, 1, 1, 0, 5}, SeenRun{LatentWay::expanded, 56, 13, 1, 20, 6}));
  // Keys of each begin at a multiple of 128 rows: 128, and what is left of a piece.
  plan = plan_of_new({11, 12, 13});
  plan.sequences[1].context_len = kPieceKeys - 128;
  plan.sequences[2].context_len = 500;
  EXPECT_THAT(
      runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
      ElementsAre(SeenRun{LatentWay::expanded, 0, 23, 2, 18, 1}, SeenRun{LatentWay::expanded, 23, 13, 1, 500, 3}));
  plan.sequences[1].context_len += 1;
  EXPECT_THAT(runs_of(place(plan, kRowLimits, memory.data(), memory.data())),
              ElementsAre(SeenRun{LatentWay::expanded, 0, 11, 1, 18, 1},
                          SeenRun{LatentWay::expanded, 11, 12, 1, kPieceKeys - 127, 2},
                          SeenRun{LatentWay::expanded, 23, 13, 1, 500, 3}));
}

TEST(LatentRows, NoMoreSequencesShareAPieceThanACallTakes) {
  constexpr StepLimits kMany{.max_tokens = 300, .max_sequences = 20, .max_samples = 8, .max_pages_per_sequence = 4};
  std::vector<std::byte> memory(placed_bytes(kMany));
  const StepPlan plan = plan_of_new(std::vector<int>(20, 11));
  EXPECT_THAT(
      runs_of(place(plan, kMany, memory.data(), memory.data())),
      ElementsAre(SeenRun{LatentWay::expanded, 0, 176, 16, 18, 1}, SeenRun{LatentWay::expanded, 176, 44, 4, 18, 17}));
}

TEST(LatentRows, BothPartsOfASequenceGoTheSameWay) {
  std::vector<std::byte> memory(placed_bytes(kRowLimits));
  StepPlan plan = plan_of_new({1, 30, 2});
  plan.prefix_tokens = 9;
  const StepTensors step = place(plan, kRowLimits, memory.data(), memory.data());
  EXPECT_THAT(runs_of(part_at(step, 0)),
              ElementsAre(SeenRun{LatentWay::absorbed, 0, 1, 1, 0, 1}, SeenRun{LatentWay::expanded, 1, 8, 1, 15, 2}));
  EXPECT_THAT(runs_of(part_at(step, 1)),
              ElementsAre(SeenRun{LatentWay::expanded, 0, 22, 1, 37, 2}, SeenRun{LatentWay::absorbed, 22, 2, 1, 0, 3}));
}

TEST(LatentRows, ADryRunExpandsTheLongest) {
  std::vector<std::byte> memory(placed_bytes(kRowLimits));
  const auto of_shape = [&](const StepShape& shape) {
    return runs_of(tensors_at(memory.data(), shape, kRowLimits), false);
  };
  EXPECT_THAT(of_shape({.num_tokens = 60, .num_sequences = 3, .max_query_len = 20}),
              ElementsAre(SeenRun{LatentWay::expanded, 0, 60, 3, kLongest, 0}));
  EXPECT_THAT(
      of_shape({.num_tokens = 60, .num_sequences = 4, .max_query_len = 57}),
      ElementsAre(SeenRun{LatentWay::absorbed, 0, 3, 3, 0, 0}, SeenRun{LatentWay::expanded, 3, 57, 1, kLongest, 0}));
}

}  // namespace
}  // namespace heddle
