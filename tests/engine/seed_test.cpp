// The seeds of a run's answers: what prompts and samples draw is independent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "engine/chi_square.h"
#include "engine/sampler.h"

namespace heddle {
namespace {

constexpr std::uint64_t kRunSeed = 1;

TEST(SeedOf, TheFirstAnswersIsTheRunsOwn) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}})
    EXPECT_EQ(seed_of(seed, {}), seed);
}

// Computed by another program.
TEST(SeedOf, IsTheSameInEveryRun) {
  EXPECT_EQ(seed_of(1, {.prompt = 1}), 591043008736361u);
  EXPECT_EQ(seed_of(1, {.sample = 1}), 3350260431499144u);
  EXPECT_EQ(seed_of(1, {.prompt = std::uint64_t{1} << 32, .sample = 5}), 6472631323910595u);
}

TEST(SeedOf, DiffersBetweenPromptsSamplesAndRuns) {
  std::set<std::uint64_t> seeds;
  for (const std::uint64_t seed : {0u, 1u, 2u})
    for (std::uint64_t prompt = 0; prompt < 300; ++prompt)
      for (std::uint32_t sample = 0; sample < 100; ++sample) {
        const std::uint64_t mixed = seed_of(seed, {.prompt = prompt, .sample = sample});
        EXPECT_LT(mixed, std::uint64_t{1} << 53);
        seeds.insert(mixed);
      }
  EXPECT_EQ(seeds.size(), 3u * 300 * 100);
}

// Draws of a model that always gives the same logits.
class Draws : public testing::Test {
 protected:
  static constexpr std::size_t kTokens = 6;

  std::int32_t draw(AnswerIndex answer, int position) {
    const SamplingParams params{.temperature = 1, .seed = seed_of(kRunSeed, answer)};
    return sampler_.sample(logits_, {.position = position, .params = params}, {});
  }

  // Counts what `outcome` gives for i in [0, 20 000), and compares with softmax.
  testing::AssertionResult follow_softmax(const std::function<std::int32_t(std::uint32_t)>& outcome) {
    std::vector<int> counts(kTokens, 0);
    for (std::uint32_t i = 0; i < 20'000; ++i) ++counts[static_cast<std::size_t>(outcome(i))];
    return follows(counts, softmax());
  }

  // The same for two draws, which must be independent.
  testing::AssertionResult are_independent(const std::function<std::int32_t(std::uint32_t)>& one,
                                           const std::function<std::int32_t(std::uint32_t)>& other) {
    std::vector<int> counts(kTokens * kTokens, 0);
    for (std::uint32_t i = 0; i < 20'000; ++i)
      ++counts[static_cast<std::size_t>(one(i)) * kTokens + static_cast<std::size_t>(other(i))];
    std::vector<double> products;
    for (const double p : softmax())
      for (const double q : softmax()) products.push_back(p * q);
    return follows(counts, products);
  }

 private:
  std::vector<double> softmax() const {
    std::vector<double> p;
    double sum = 0;
    for (const float logit : logits_) sum += p.emplace_back(std::exp(logit));
    for (double& x : p) x /= sum;
    return p;
  }

  std::vector<float> logits_{0, 1, -1, 0.5f, 2, -2};
  Sampler sampler_{kTokens};
};

TEST_F(Draws, OfManyPromptsFollowSoftmaxAtEveryPosition) {
  for (const int position : {1, 2, 500})
    EXPECT_TRUE(follow_softmax([&](std::uint32_t i) { return draw({.prompt = i}, position); })) << position;
}

TEST_F(Draws, OfManySamplesFollowSoftmaxAtEveryPosition) {
  for (const std::uint64_t prompt : {0u, 41u})
    for (const int position : {1, 2, 500})
      EXPECT_TRUE(follow_softmax([&](std::uint32_t i) { return draw({.prompt = prompt, .sample = i}, position); }))
          << "prompt " << prompt << ", position " << position;
}

TEST_F(Draws, OfAPromptFollowSoftmaxOverItsPositions) {
  for (const std::uint64_t prompt : {0u, 1u, 41u})
    EXPECT_TRUE(follow_softmax([&](std::uint32_t i) { return draw({.prompt = prompt}, static_cast<int>(i)); }))
        << prompt;
}

TEST_F(Draws, OfNeighboursAreIndependent) {
  const auto prompt = [&](std::uint32_t i) { return draw({.prompt = i}, 9); };
  EXPECT_TRUE(are_independent(prompt, [&](std::uint32_t i) { return draw({.prompt = i + 1}, 9); })) << "next prompt";
  EXPECT_TRUE(are_independent(prompt, [&](std::uint32_t i) { return draw({.prompt = i}, 10); })) << "next position";
  EXPECT_TRUE(are_independent(prompt, [&](std::uint32_t i) { return draw({.prompt = i + 1}, 10); })) << "both";
  EXPECT_TRUE(are_independent(prompt, [&](std::uint32_t i) { return draw({.prompt = i, .sample = 1}, 9); }))
      << "next sample";
  const auto sample = [&](std::uint32_t i) { return draw({.prompt = 3, .sample = i}, 9); };
  EXPECT_TRUE(are_independent(sample, [&](std::uint32_t i) { return draw({.prompt = 3, .sample = i + 1}, 9); }))
      << "next sample of one prompt";
}

}  // namespace
}  // namespace heddle
