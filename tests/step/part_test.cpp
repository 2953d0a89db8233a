#include "step/part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "step/step_bytes.h"
#include "step/step_plan.h"

namespace heddle {
namespace {

using testing::ElementsAre;

constexpr int kSizeOfPage = 4;
constexpr StepLimits kTwoParts{
    .max_tokens = 64, .max_sequences = 8, .max_samples = 8, .max_pages_per_sequence = 16, .max_parts = kMostParts};

struct NewTokens {
  int before;
  int count;
};

// Sequences with pages of their own, one after the other.
StepPlan plan_of_counts(const std::vector<NewTokens>& sequences) {
  StepPlan plan;
  for (const auto& [before, count] : sequences) {
    const int length = before + count, num_pages = (length + kSizeOfPage - 1) / kSizeOfPage;
    plan.sequences.push_back({.first_token = static_cast<std::int32_t>(plan.tokens.size()),
                              .num_tokens = count,
                              .context_len = length,
                              .first_page = static_cast<std::int32_t>(plan.pages.size()),
                              .num_pages = num_pages});
    for (int page = 0; page < num_pages; ++page) plan.pages.push_back(static_cast<std::int32_t>(plan.pages.size()));
    for (int i = before; i < length; ++i) {
      plan.tokens.push_back(100 + i);
      plan.positions.push_back(i);
    }
  }
  return plan;
}

std::vector<std::int32_t> first(const std::int32_t* array, int count) {
  return {array, array + count};
}

TEST(Part, ASequenceAcrossTheBorderIsInBoth) {
  StepPlan plan = plan_of_counts({{5, 1}, {2, 7}, {0, 3}});
  plan.prefix_tokens = 4;
  std::vector<std::byte> memory(placed_bytes(kTwoParts));
  const StepTensors step = place(plan, kTwoParts, memory.data(), memory.data());
  ASSERT_EQ(step.num_parts(), 2);
  EXPECT_EQ(step.num_page_tables(), 4);
  EXPECT_EQ(step.query_start, nullptr) << "nobody reads the whole step's sequences";

  const StepTensors a = part_at(step, 0), b = part_at(step, 1);
  EXPECT_EQ(a.num_tokens, 4);
  EXPECT_EQ(a.max_query_len, 3);
  EXPECT_THAT(first(a.tokens, 4), ElementsAre(105, 102, 103, 104));
  EXPECT_THAT(first(a.query_start, 3), ElementsAre(0, 1, 4));
  EXPECT_THAT(first(a.context_len, 2), ElementsAre(6, 5)) << "what the second part writes is not there yet";
  EXPECT_THAT(first(a.page_table + a.page_table_stride, 2), ElementsAre(2, 3));

  EXPECT_EQ(b.num_tokens, 7);
  EXPECT_EQ(b.max_query_len, 4);
  EXPECT_THAT(first(b.positions, 7), ElementsAre(5, 6, 7, 8, 0, 1, 2));
  EXPECT_THAT(first(b.query_start, 3), ElementsAre(0, 4, 7));
  EXPECT_THAT(first(b.context_len, 2), ElementsAre(9, 3));
  EXPECT_THAT(first(b.page_table, 3), ElementsAre(2, 3, 4));
}

TEST(Part, ABorderBetweenSequencesCutsNone) {
  StepPlan plan = plan_of_counts({{5, 1}, {2, 7}, {0, 3}});
  plan.prefix_tokens = 8;
  const PartShapes parts = parts_of(plan);
  EXPECT_EQ(parts[0], (PartShape{0, 8, 0, 2, 7}));
  EXPECT_EQ(parts[1], (PartShape{8, 3, 2, 1, 3}));
}

TEST(Part, AStepWithoutABorderIsOne) {
  const StepPlan plan = plan_of_counts({{5, 1}, {2, 7}});
  std::vector<std::byte> memory(placed_bytes(kTwoParts));
  const StepTensors step = place(plan, kTwoParts, memory.data(), memory.data());
  EXPECT_EQ(step.num_parts(), 1);
  EXPECT_EQ(part_at(step, 0).query_start, step.query_start);
}

TEST(Part, ABorderOutsideTheStepOrItsLimitsIsRefused) {
  StepPlan plan = plan_of_counts({{0, 5}});
  constexpr int kPages = 64, kVocabulary = 1000;
  for (const int border : {-1, 5, 6}) {
    plan.prefix_tokens = border;
    EXPECT_THROW(validate(plan, kTwoParts, kSizeOfPage, kPages, kVocabulary), InvalidArgument) << border;
  }
  plan.prefix_tokens = 2;
  validate(plan, kTwoParts, kSizeOfPage, kPages, kVocabulary);
  StepLimits whole = kTwoParts;
  whole.max_parts = 1;
  EXPECT_THROW(validate(plan, whole, kSizeOfPage, kPages, kVocabulary), InvalidArgument);
}

TEST(Part, ABorderTravelsWithThePlan) {
  StepPlan plan = plan_of_counts({{0, 5}}), other;
  plan.prefix_tokens = 3;
  std::vector<std::byte> bytes;
  pack(plan, bytes);
  unpack(bytes, other);
  EXPECT_EQ(other.prefix_tokens, 3);
  other.clear();
  EXPECT_EQ(other.prefix_tokens, 0);
}

// Whatever the border: each token once, with its position, its sequence's pages, and all earlier keys.
TEST(Part, PartsTogetherAreTheStep) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 8);
    std::vector<NewTokens> sequences;
    for (int i = 0; i < count; ++i) sequences.push_back({*rc::gen::inRange(0, 9), *rc::gen::inRange(1, 8)});
    StepPlan plan = plan_of_counts(sequences);
    const auto num_tokens = static_cast<int>(plan.tokens.size());
    if (num_tokens < 2) return;
    plan.prefix_tokens = *rc::gen::inRange(1, num_tokens);
    std::vector<std::byte> memory(placed_bytes(kTwoParts));
    const StepTensors step = place(plan, kTwoParts, memory.data(), memory.data());
    const StepTensors alone = tensors_at(memory.data(), shape_of(plan), kTwoParts);
    int row = 0;
    for (int index = 0; index < kMostParts; ++index) {
      const StepTensors part = part_at(step, index);
      RC_ASSERT(part.page_table == part_at(alone, index).page_table);
      RC_ASSERT(part.query_start[0] == 0 && part.query_start[part.num_sequences] == part.num_tokens);
      for (int i = 0; i < part.num_sequences; ++i) {
        const int begin = part.query_start[i], end = part.query_start[i + 1];
        RC_ASSERT(begin < end && end - begin <= part.max_query_len);
        RC_ASSERT(part.positions[end - 1] + 1 == part.context_len[i]);
        RC_ASSERT(part.alone_start[2 * i] == 0 && part.alone_start[2 * i + 1] == end - begin);
        const StepSequence known = sequence_of(part, i);
        RC_ASSERT(known.first_token == begin && known.num_tokens == end - begin);
        RC_ASSERT(known.context_len == part.context_len[i]);
        for (int j = begin; j < end; ++j, ++row) {
          RC_ASSERT(part.tokens[j] == plan.tokens[static_cast<std::size_t>(row)]);
          const auto owner = std::ranges::find_if(plan.sequences, [&](const StepSequence& sequence) {
            return row >= sequence.first_token && row < sequence.first_token + sequence.num_tokens;
          });
          RC_ASSERT(part.page_table[i * part.page_table_stride] ==
                    plan.pages[static_cast<std::size_t>(owner->first_page)]);
        }
      }
    }
    RC_ASSERT(row == num_tokens);
  }));
}

}  // namespace
}  // namespace heddle
