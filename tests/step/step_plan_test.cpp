#include "step/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kPageSize = 4;
constexpr int kNumPages = 8;
constexpr int kVocab = 100;
constexpr StepLimits kLimits{.max_tokens = 6, .max_sequences = 3, .max_samples = 2, .max_pages_per_sequence = 4};

// A chunk of three tokens after two cached ones, and a decode at context 9.
StepPlan two_sequences() {
  StepPlan plan;
  plan.tokens = {7, 8, 9, 42};
  plan.positions = {2, 3, 4, 8};
  plan.sequences = {
      {.request = 1, .first_token = 0, .num_tokens = 3, .context_len = 5, .first_page = 0, .num_pages = 2},
      {.request = 2, .first_token = 3, .num_tokens = 1, .context_len = 9, .first_page = 2, .num_pages = 3}};
  plan.pages = {6, 1, 0, 7, 3};
  plan.samples = {{.sequence = 1, .row = 3, .position = 9, .params = {}}};
  return plan;
}

TEST(StepPlan, AWellFormedPlanIsValid) {
  validate(two_sequences(), kLimits, kPageSize, kNumPages, kVocab);
}

TEST(StepPlan, EachKindOfDisorderIsNamed) {
  struct Case {
    const char* message;
    std::function<void(StepPlan&)> disturb;
  };
  const Case cases[] = {
      {"4 tokens but 3 positions", [](StepPlan& p) { p.positions.pop_back(); }},
      {"row 1 is at position 9, expected 3", [](StepPlan& p) { p.positions[1] = 9; }},
      {"has token 100, outside", [](StepPlan& p) { p.tokens[0] = 100; }},
      {"has token -1, outside", [](StepPlan& p) { p.tokens[0] = -1; }},
      {"begins at row 2, expected 3", [](StepPlan& p) { p.sequences[1].first_token = 2; }},
      {"ends at row 5", [](StepPlan& p) { p.sequences[1].num_tokens = 2; }},
      {"but there are 4 tokens", [](StepPlan& p) { p.sequences.pop_back(), p.samples.clear(); }},
      {"0 new tokens", [](StepPlan& p) { p.sequences[0].num_tokens = 0; }},
      {"has 2 pages for a context of 9", [](StepPlan& p) { p.sequences[1].num_pages = 2; }},
      {"pages for a context", [](StepPlan& p) { p.sequences[1].first_page = 3; }},
      {"uses page 8, outside", [](StepPlan& p) { p.pages[4] = 8; }},
      {"uses page -1, outside", [](StepPlan& p) { p.pages[0] = -1; }},
      {"a sample at row 4", [](StepPlan& p) { p.samples[0].row = 4; }},
      {"a sample of sequence 2", [](StepPlan& p) { p.samples[0].sequence = 2; }},
      {"does not belong to sequence 0", [](StepPlan& p) { p.samples[0].sequence = 0; }},
      {"after row 3", [](StepPlan& p) { p.samples.push_back(p.samples[0]); }},
      {"7 tokens of 2 sequences", [](StepPlan& p) { p.tokens.resize(7); }},
      {"of 4 sequences", [](StepPlan& p) { p.sequences.resize(4); }},
      {"with 3 samples", [](StepPlan& p) { p.samples.resize(3); }},
      {"has 5 pages, the limit is 4", [](StepPlan& p) { p.sequences[0].num_pages = 5; }},
      {"a copy of page 3 to page 8",
       [](StepPlan& p) {
         p.page_copies = {{3, 8}};
       }},
      {"a copy of page 3 to page 3",
       [](StepPlan& p) {
         p.page_copies = {{3, 3}};
       }},
  };
  for (const Case& c : cases) {
    StepPlan plan = two_sequences();
    c.disturb(plan);
    try {
      validate(plan, kLimits, kPageSize, kNumPages, kVocab);
      ADD_FAILURE() << "not refused: " << c.message;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message));
    }
  }
}

TEST(StepPlan, IsPlacedAsOperatorsReadIt) {
  std::vector<std::byte> memory(placed_bytes(kLimits));
  StepPlan plan = two_sequences();
  const StepTensors step = place(plan, kLimits, memory.data(), memory.data());
  plan.clear();
  EXPECT_EQ(step.num_tokens, 4);
  EXPECT_EQ(step.num_sequences, 2);
  EXPECT_EQ(step.page_table_stride, 4);
  EXPECT_EQ(step.max_query_len, 3);
  EXPECT_THAT(std::vector(step.tokens, step.tokens + 4), ElementsAre(7, 8, 9, 42));
  EXPECT_THAT(std::vector(step.positions, step.positions + 4), ElementsAre(2, 3, 4, 8));
  EXPECT_THAT(std::vector(step.query_start, step.query_start + 3), ElementsAre(0, 3, 4));
  EXPECT_THAT(std::vector(step.context_len, step.context_len + 2), ElementsAre(5, 9));
  EXPECT_THAT(std::vector(step.alone_start, step.alone_start + 4), ElementsAre(0, 3, 0, 1));
  EXPECT_THAT(std::vector(step.page_table, step.page_table + 2), ElementsAre(6, 1));
  EXPECT_THAT(std::vector(step.page_table + 4, step.page_table + 7), ElementsAre(0, 7, 3));
  EXPECT_THAT(std::vector(step.logit_rows, step.logit_rows + 1), ElementsAre(3));
  const std::int32_t* end = step.page_table + std::ptrdiff_t{kLimits.max_sequences} * step.page_table_stride;
  EXPECT_LE(reinterpret_cast<const std::byte*>(end), memory.data() + memory.size());
}

// A captured graph reads from the addresses of the step it was captured with.
TEST(StepPlan, StandsAtTheSameAddressesWhateverItsSize) {
  std::vector<std::byte> memory(placed_bytes(kLimits));
  const StepTensors first = place(two_sequences(), kLimits, memory.data(), memory.data());
  StepPlan small = two_sequences();
  small.sequences.pop_back();
  small.samples.clear();
  const StepTensors second = place(small, kLimits, memory.data(), memory.data());
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.positions, second.positions);
  EXPECT_EQ(first.page_table, second.page_table);
  EXPECT_EQ(first.page_table_stride, second.page_table_stride);
  EXPECT_EQ(first.logit_rows, second.logit_rows);
}

TEST(StepPlan, OfAShapeAloneStandsWhereAPlanOfThatShapeDoes) {
  std::vector<std::byte> memory(placed_bytes(kLimits));
  const StepTensors placed = place(two_sequences(), kLimits, memory.data(), memory.data());
  const StepTensors alone = tensors_at(
      memory.data(), {.num_tokens = 4, .num_sequences = 2, .num_logit_rows = 1, .max_query_len = 3}, kLimits);
  EXPECT_EQ(alone.tokens, placed.tokens);
  EXPECT_EQ(alone.context_len, placed.context_len);
  EXPECT_EQ(alone.logit_rows, placed.logit_rows);
  EXPECT_EQ(alone.page_table, placed.page_table);
  EXPECT_EQ(alone.page_table_stride, placed.page_table_stride);
  EXPECT_EQ(alone.num_tokens, placed.num_tokens);
  EXPECT_EQ(alone.num_sequences, placed.num_sequences);
  EXPECT_EQ(alone.num_logit_rows, placed.num_logit_rows);
  EXPECT_EQ(alone.max_query_len, placed.max_query_len);
}

TEST(StepPlan, CanBeReadElsewhereOnceItsFirstBytesAreCopied) {
  std::vector<std::byte> written(placed_bytes(kLimits)), read(placed_bytes(kLimits));
  const StepPlan plan = two_sequences();
  const StepTensors step = place(plan, kLimits, written.data(), read.data());
  std::copy_n(written.begin(), placed_bytes(kLimits, step.num_sequences), read.begin());
  EXPECT_THAT(std::vector(step.tokens, step.tokens + 4), ElementsAre(7, 8, 9, 42));
  EXPECT_THAT(std::vector(step.page_table + 4, step.page_table + 7), ElementsAre(0, 7, 3));
  EXPECT_LE(placed_bytes(kLimits, 1), placed_bytes(kLimits, 2));
  EXPECT_EQ(placed_bytes(kLimits, kLimits.max_sequences), placed_bytes(kLimits));
}

TEST(StepPlan, DecodingIsFilledUpWithSequencesThatShareNoSlot) {
  constexpr int kSpare = 100, kSize = 4, kBatch = 8;
  StepPlan plan;
  for (int i = 0; i < 2; ++i) {
    plan.tokens.push_back(50 + i);
    plan.positions.push_back(6 + i);
    plan.sequences.push_back(
        {.request = i, .first_token = i, .num_tokens = 1, .context_len = 7 + i, .first_page = 2 * i, .num_pages = 2});
    plan.pages.insert(plan.pages.end(), {2 * i, 2 * i + 1});
    plan.samples.push_back({.sequence = i, .row = i, .position = 7 + i, .params = {}});
  }
  EXPECT_TRUE(is_decode(plan));
  StepPlan padded;
  pad_decode(plan, kBatch, kSize, kSpare, padded);
  EXPECT_TRUE(is_decode(padded));
  ASSERT_EQ(padded.sequences.size(), 8u);
  const StepLimits limits{.max_tokens = 8, .max_sequences = 8, .max_samples = 8, .max_pages_per_sequence = 2};
  validate(padded, limits, kSize, kSpare + spare_pages_for(kBatch - 2, kSize), 1000);
  EXPECT_EQ(padded.sequences[1].context_len, 8);
  std::vector<int> slots;
  for (std::size_t i = 2; i < 8; ++i) {
    const StepSequence& added = padded.sequences[i];
    const int position = padded.positions[i];
    const auto page = static_cast<std::size_t>(added.first_page + position / kSize);
    EXPECT_GE(padded.pages[page], kSpare);
    slots.push_back(padded.pages[page] * kSize + position % kSize);
  }
  std::ranges::sort(slots);
  EXPECT_EQ(std::ranges::adjacent_find(slots), slots.end());
}

}  // namespace
}  // namespace heddle
