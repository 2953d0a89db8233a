#include "step/step_bytes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

StepPlan plan_with_everything() {
  StepPlan plan;
  plan.tokens = {5, ~0, 7};
  plan.positions = {0, 1, 0};
  plan.sequences = {
      {.request = 3, .first_token = 0, .num_tokens = 2, .context_len = 2, .first_page = 0, .num_pages = 1},
      {.request = 1, .first_token = 2, .num_tokens = 1, .context_len = 1, .first_page = 1, .num_pages = 1}};
  plan.pages = {4, 9};
  plan.samples = {{.sequence = 1, .row = 2, .position = 1, .params = {.temperature = 0.5, .top_k = 3}, .scored = 2}};
  plan.page_copies = {{.from = 1, .to = 4}};
  plan.prefix_tokens = 2;
  plan.choices = {.sums = SumForm::sharded,
                  .sum_algorithm = 2,
                  .sum_blocks = 7,
                  .sum_threads = 64,
                  .decode = {.form = DecodeChoice::Form::clusters, .cluster = 8, .parts = 2},
                  .qkv_gather = {.form = GatherChoice::Form::bsp},
                  .gate_up_gather = {.form = GatherChoice::Form::pull, .tile = 1, .transfer_sms = 16}};
  return plan;
}

TEST(StepBytes, AnotherProcessGetsTheSameStep) {
  const StepPlan plan = plan_with_everything();
  std::vector<std::byte> bytes, again;
  pack(plan, bytes);
  StepPlan other;
  other.tokens.assign(40, 1);  // of a step before
  unpack(bytes, other);
  EXPECT_EQ(other.tokens, plan.tokens);
  EXPECT_EQ(other.positions, plan.positions);
  EXPECT_EQ(other.pages, plan.pages);
  ASSERT_EQ(other.sequences.size(), 2u);
  EXPECT_EQ(other.sequences[1].first_page, 1);
  ASSERT_EQ(other.samples.size(), 1u);
  EXPECT_EQ(other.samples[0].params.top_k, 3);
  EXPECT_EQ(other.samples[0].scored, 2);
  ASSERT_EQ(other.page_copies.size(), 1u);
  EXPECT_EQ(other.page_copies[0].to, 4);
  EXPECT_EQ(other.prefix_tokens, 2);
  EXPECT_EQ(other.choices, plan.choices);
  pack(other, again);
  EXPECT_EQ(again.size(), bytes.size());
}

TEST(StepBytes, AStepWithoutAnythingIsOne) {
  std::vector<std::byte> bytes;
  pack({}, bytes);
  StepPlan plan = plan_with_everything();
  unpack(bytes, plan);
  EXPECT_TRUE(plan.tokens.empty() && plan.samples.empty() && plan.page_copies.empty());
}

TEST(StepBytes, WhatIsNoStepIsRefusedAtEveryLength) {
  std::vector<std::byte> bytes;
  pack(plan_with_everything(), bytes);
  StepPlan plan;
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(unpack(std::span(bytes).first(size), plan), InvalidArgument) << size;
  bytes.push_back({});
  EXPECT_THROW(unpack(bytes, plan), InvalidArgument);
  std::vector<std::byte> huge(8, std::byte{0xff});
  EXPECT_THROW(unpack(huge, plan), InvalidArgument);
}

}  // namespace
}  // namespace heddle
