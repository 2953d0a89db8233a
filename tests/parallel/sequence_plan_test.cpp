#include "parallel/sequence/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/sequence/batch_teams.h"

namespace heddle {
namespace {

using testing::HasSubstr;

// A layer of Flux that generates 3072 x 3072, on the paper's machines.
SequenceRequest flux() {
  return {.placement = {4, 8}, .num_heads = 24, .head_dim = 128, .num_tokens = 37376, .degree = {}, .rates = {}};
}

// Those of figures 7, 9 and 10.
std::vector<SequenceRequest> layers_of_the_paper() {
  std::vector<SequenceRequest> layers;
  const auto add = [&](int machines, int head_dim, std::int64_t tokens, int batch) {
    SequenceRequest request = flux();
    request.placement.machines = machines;
    request.head_dim = head_dim;
    request.num_tokens = tokens;
    request.batch = batch;
    layers.push_back(request);
  };
  for (const int machines : {2, 3, 4}) {
    for (const std::int64_t tokens : {37376, 66048}) add(machines, 128, tokens, 1);
    for (const std::int64_t tokens : {167506, 330706}) add(machines, 64, tokens, 1);
  }
  for (const int head_dim : {32, 64, 128}) {
    for (const int thousands : {96, 128, 160, 192}) add(4, head_dim, std::int64_t{1024} * thousands, 1);
    for (const int batch : {2, 4}) add(4, head_dim, std::int64_t{1024} * 96, batch);
  }
  return layers;
}

TEST(SequencePlan, HasThePapersVolumesOfFlux) {
  const SequencePlan plan = plan_sequence_attention(flux());
  const double elements = 37376.0 * 24 * 128;
  EXPECT_DOUBLE_EQ(plan.of(SequenceStrategy::usp).printed_elements, 2 * 3 * elements / 4);
  EXPECT_DOUBLE_EQ(plan.of(SequenceStrategy::one_sided).printed_elements, 4 * 3 / 4.0 * elements / 4);
  for (const SequenceForecast& of : plan.strategies) {
    if (!of.reason.empty()) continue;
    EXPECT_DOUBLE_EQ(static_cast<double>(of.counted_elements), of.printed_elements) << name_of(of.strategy);
    EXPECT_EQ(of.barriers_of_all, 2);
  }
  EXPECT_THAT(plan.of(SequenceStrategy::ulysses).reason, HasSubstr("does not divide 24 heads"));
  EXPECT_EQ(plan.pick, SequenceStrategy::one_sided);
}

TEST(SequencePlan, OrdersTheStrategiesAsThePaperMeasured) {
  const SequencePlan plan = plan_sequence_attention(flux());
  const auto seconds = [&](SequenceStrategy strategy) { return plan.of(strategy).timeline.seconds; };
  EXPECT_LT(seconds(SequenceStrategy::one_sided), seconds(SequenceStrategy::torus));
  EXPECT_LT(seconds(SequenceStrategy::torus), seconds(SequenceStrategy::tas));
  EXPECT_LT(seconds(SequenceStrategy::tas), seconds(SequenceStrategy::usp));
}

// Where USP hides all of its transfers, one-sided transfers can add nothing, and cost what their calls of attention over
// less keys and the state that these carry cost: more computation. There USP is the pick.
TEST(SequencePlan, PicksNothingSlowerThanUspInTheLayersOfThePaper) {
  for (const SequenceRequest& request : layers_of_the_paper()) {
    const SequencePlan plan = plan_sequence_attention(request);
    SCOPED_TRACE(testing::Message() << request.placement.machines << " machines, D " << request.head_dim << ", "
                                    << request.num_tokens << " tokens, batch " << request.batch);
    EXPECT_LE(plan.picked().timeline.seconds, plan.fastest_of(SequenceStrategy::usp).timeline.seconds);
    const SequenceTimeline& one_sided = plan.fastest_of(SequenceStrategy::one_sided).timeline;
    const SequenceTimeline& usp = plan.fastest_of(SequenceStrategy::usp).timeline;
    EXPECT_LE(one_sided.seconds, 1.01 * usp.seconds + one_sided.compute_seconds - usp.compute_seconds);
    EXPECT_EQ(plan.picked().strategy, plan.pick);
    for (const SequenceForecast& of : plan.fastest)
      if (of.reason.empty()) {
        EXPECT_LE(plan.picked().timeline.seconds, of.timeline.seconds);
        EXPECT_LE(of.timeline.seconds, plan.of(of.strategy).timeline.seconds);
      }
  }
}

TEST(SequencePlan, SearchesTheDegreesUnlessOneIsGiven) {
  SequenceRequest request = flux();
  request.placement.machines = 3;
  const SequencePlan searched = plan_sequence_attention(request);
  EXPECT_EQ(searched.of(SequenceStrategy::one_sided).mesh.groups(), 24);
  EXPECT_EQ(searched.picked().mesh.groups(), 6);
  EXPECT_LT(searched.picked().timeline.seconds, searched.of(SequenceStrategy::one_sided).timeline.seconds);
  request.degree = 24;
  const SequencePlan given = plan_sequence_attention(request);
  EXPECT_EQ(given.fastest_of(SequenceStrategy::one_sided).mesh.groups(), 24);
}

TEST(BatchTeams, HalvesHaveHalfOfTheMachinesOrOfEachMachinesRanks) {
  using testing::ElementsAre;
  const BatchTeams whole = divide_batch({2, 2}, 3, 1, "test");
  EXPECT_EQ(whole.placement, (Placement{2, 2}));
  EXPECT_EQ(whole.batch, 3);
  EXPECT_THAT(whole.ranks_of(0), ElementsAre(0, 1, 2, 3));
  const BatchTeams machines = divide_batch({4, 2}, 6, 2, "test");
  EXPECT_EQ(machines.placement, (Placement{2, 2}));
  EXPECT_EQ(machines.batch, 3);
  EXPECT_EQ(machines.on_a_machine, 1);
  EXPECT_THAT(machines.ranks_of(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(machines.ranks_of(1), ElementsAre(4, 5, 6, 7));
  const BatchTeams ranks = divide_batch({3, 4}, 2, 2, "test");
  EXPECT_EQ(ranks.placement, (Placement{3, 2}));
  EXPECT_EQ(ranks.on_a_machine, 2);
  EXPECT_THAT(ranks.ranks_of(0), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_THAT(ranks.ranks_of(1), ElementsAre(2, 3, 6, 7, 10, 11));
  for (int rank = 0; rank < 12; ++rank) EXPECT_THAT(ranks.ranks_of(ranks.team_of(rank)), testing::Contains(rank));
}

// A half of the batch on half of the machines is a request of its own; halves of a machine share its link.
TEST(SequencePlan, DividesABatchOverTwoHalvesOfTheRanks) {
  SequenceRequest both = flux(), half = flux();
  both.batch = 2;
  both.halves = 2;
  half.placement.machines = 2;
  const SequencePlan of_both = plan_sequence_attention(both), of_half = plan_sequence_attention(half);
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    EXPECT_EQ(of_both.of(strategy).counted_elements, of_half.of(strategy).counted_elements);
    EXPECT_EQ(of_both.of(strategy).timeline.seconds, of_half.of(strategy).timeline.seconds);
  }

  both.placement.machines = 3;
  half.placement = {3, 4};
  half.rates.machine_link_bytes /= 2;
  EXPECT_EQ(plan_sequence_attention(both).of(SequenceStrategy::usp).counted_elements,
            2 * plan_sequence_attention(half).of(SequenceStrategy::usp).counted_elements);
  EXPECT_EQ(plan_sequence_attention(both).of(SequenceStrategy::usp).timeline.seconds,
            plan_sequence_attention(half).of(SequenceStrategy::usp).timeline.seconds);
}

TEST(SequencePlan, ExposesAllTransfersOfUlyssesAndNoneOfFreeLinks) {
  SequenceRequest request{
      .placement = {4, 1}, .num_heads = 4, .head_dim = 64, .num_tokens = 4096, .degree = {}, .rates = {}};
  request.rates = {.attention_flops = 1e12,
                   .memory_bytes = 1e15,
                   .gpu_link_bytes = 1e9,
                   .machine_link_bytes = 1e9,
                   .call_seconds = 0,
                   .local_seconds = 0,
                   .remote_seconds = 0};
  const SequencePlan plan = plan_sequence_attention(request);
  // Q, K, V before and O behind: each machine sends and receives 3/4 of them.
  const SequenceForecast& ulysses = plan.of(SequenceStrategy::ulysses);
  EXPECT_NEAR(ulysses.timeline.exposed_seconds, static_cast<double>(ulysses.counted_elements) * 2 / 1e9,
              0.05 * ulysses.timeline.exposed_seconds);
  EXPECT_NEAR(ulysses.timeline.compute_seconds, 4.0 * 4096 * 4096 * 64 / 1e12, 1e-6);
  EXPECT_LT(plan.of(SequenceStrategy::one_sided).timeline.exposed_seconds, ulysses.timeline.exposed_seconds / 2);

  request.rates.machine_link_bytes = 1e18;
  for (const SequenceForecast& of : plan_sequence_attention(request).strategies)
    EXPECT_LT(of.timeline.exposed_seconds, 1e-6) << name_of(of.strategy);
}

// O', l and m of each row leave a call that carries them on and enter the next one: on a ring of four all calls but one do.
TEST(SequencePlan, ChargesTheStateThatCallsCarry) {
  SequenceRequest request{
      .placement = {4, 1}, .num_heads = 4, .head_dim = 64, .num_tokens = 4096, .degree = {}, .rates = {}};
  request.rates.call_seconds = 0;
  const auto compute_seconds = [&](SequenceStrategy strategy) {
    return plan_sequence_attention(request).of(strategy).timeline.compute_seconds;
  };
  const double state_bytes = 1024.0 * 4 * (64 + 2) * 4;  // of a rank's tokens
  EXPECT_NEAR(compute_seconds(SequenceStrategy::ring) - compute_seconds(SequenceStrategy::ulysses),
              2 * 3 * state_bytes / request.rates.memory_bytes, 1e-9);
}

TEST(SequencePlan, TakesEveryShapeOfMachines) {
  for (const int machines : {1, 2, 3, 5, 6})
    for (const int gpus : {1, 2, 3, 4})
      for (const int heads : {1, 2, 6, 24}) {
        const SequenceRequest request{.placement = {machines, gpus},
                                      .num_heads = heads,
                                      .head_dim = 64,
                                      .num_tokens = 1001,
                                      .degree = {},
                                      .rates = {}};
        const SequencePlan plan = plan_sequence_attention(request);
        EXPECT_TRUE(plan.of(plan.pick).reason.empty());
        for (const SequenceForecast& of : plan.strategies) {
          if (!of.reason.empty()) continue;
          EXPECT_GE(of.timeline.exposed_seconds, 0);
          if (machines == 1) {
            EXPECT_EQ(of.counted_elements, 0);
          }
        }
      }
}

TEST(SequencePlan, RejectsBadSizesWithTheReason) {
  const auto rejects = [](const auto& change, const char* why) {
    SequenceRequest request = flux();
    change(request);
    EXPECT_THAT([&] { plan_sequence_attention(request); }, testing::ThrowsMessage<InputError>(HasSubstr(why)));
  };
  rejects([](SequenceRequest& r) { r.placement.machines = 0; }, "machines is 0");
  rejects([](SequenceRequest& r) { r.placement.machines = 100000; }, "at most 128 are planned");
  rejects([](SequenceRequest& r) { r.num_heads = 0; }, "heads is 0");
  rejects([](SequenceRequest& r) { r.num_tokens = 0; }, "tokens is 0");
  rejects([](SequenceRequest& r) { r.num_tokens = std::int64_t{1} << 40; }, "tokens is 1099511627776, at most");
  rejects([](SequenceRequest& r) { r.head_dim = 257; }, "at most 256, and 32, 64 or 128 on GPUs");
  rejects([](SequenceRequest& r) { r.halves = 2; }, "2 halves of an even batch");
  rejects(
      [](SequenceRequest& r) {
        r.halves = r.batch = 2;
        r.placement = {3, 3};
      },
      "3 machines of 3 GPUs do not divide into two halves of the batch; an even number of machines or of GPUs does");
  rejects([](SequenceRequest& r) { r.batch = r.num_heads = 1 << 30; }, "overflows");
  rejects([](SequenceRequest& r) { r.degree = 5; },
          "a Ulysses degree of 5 does not divide 32 ranks and 24 heads. usp, tas, torus and one_sided take a degree of "
          "1, 2, 4, 8; without "
          "a degree there is also ring");
}

}  // namespace
}  // namespace heddle
