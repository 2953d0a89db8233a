#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "engine/chi_square.h"
#include "engine/token_history.h"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The distribution for a row and its parameters, computed directly from the definitions: each filter reads a
// probability vector and sets entries to 0.
std::vector<double> oracle(const std::vector<float>& logits, const SamplingParams& params,
                           const std::vector<std::int32_t>& prompt = {}, const std::vector<std::int32_t>& text = {},
                           const std::vector<LogitBias>& biases = {}) {
  const std::size_t n = logits.size();
  std::vector<double> l(logits.begin(), logits.end());
  for (std::size_t id = 0; id < n; ++id) {
    const auto count_in = [id](const std::vector<std::int32_t>& tokens) {
      return std::count(tokens.begin(), tokens.end(), static_cast<std::int32_t>(id));
    };
    if (count_in(prompt) + count_in(text) > 0)
      l[id] = l[id] > 0 ? l[id] / params.repetition_penalty : l[id] * params.repetition_penalty;
    if (count_in(text) > 0) l[id] -= params.presence_penalty;
    l[id] -= params.frequency_penalty * static_cast<double>(count_in(text));
  }
  for (const LogitBias& bias : biases) l[static_cast<std::size_t>(bias.id)] += bias.bias;
  std::vector<double> p(n, 0);
  const auto normalize = [&] {
    double sum = 0;
    for (const double x : p) sum += x;
    for (double& x : p) x /= sum;
  };
  // The rank of an id by falling probability; equal ones in order of ids.
  const auto rank = [&](std::size_t id) {
    std::size_t before = 0;
    for (std::size_t other = 0; other < n; ++other) before += l[other] > l[id] || (l[other] == l[id] && other < id);
    return before;
  };
  if (params.temperature == 0) {
    for (std::size_t id = 0; id < n; ++id) p[id] = rank(id) == 0;
    return p;
  }
  const double largest = *std::max_element(l.begin(), l.end());
  for (std::size_t id = 0; id < n; ++id) p[id] = std::exp((l[id] - largest) / params.temperature);
  normalize();
  if (params.top_k > 0)
    for (std::size_t id = 0; id < n; ++id)
      if (rank(id) >= static_cast<std::size_t>(params.top_k)) p[id] = 0;
  normalize();
  const std::vector<double> before_top_p = p;
  for (std::size_t id = 0; id < n; ++id) {
    double likelier = 0;
    for (std::size_t other = 0; other < n; ++other)
      if (rank(other) < rank(id)) likelier += before_top_p[other];
    if (rank(id) > 0 && likelier >= params.top_p) p[id] = 0;
  }
  normalize();
  const double most = *std::max_element(p.begin(), p.end());
  for (double& x : p)
    if (x < params.min_p * most) x = 0;
  normalize();
  return p;
}

std::vector<float> random_logits(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Case {
  const char* name;
  SamplingParams params;
  std::vector<LogitBias> biases = {};
};

TokenHistory history_of(const std::vector<std::int32_t>& prompt, const std::vector<std::int32_t>& text,
                        const std::vector<LogitBias>& biases = {}) {
  TokenHistory history(prompt, biases);
  for (const std::int32_t id : text) history.add_text(id);
  return history;
}

const Case kCases[] = {
    {"plain", {.temperature = 1}},
    {"cold", {.temperature = 0.5}},
    {"hot", {.temperature = 3}},
    {"top_k", {.temperature = 1, .top_k = 5}},
    {"top_k 1", {.temperature = 1, .top_k = 1}},
    {"top_k of all", {.temperature = 1, .top_k = 40}},
    {"top_p", {.temperature = 1, .top_p = 0.7}},
    {"top_p that keeps one", {.temperature = 1, .top_p = 1e-6}},
    {"min_p", {.temperature = 1, .min_p = 0.2}},
    {"min_p 1", {.temperature = 1, .min_p = 1}},
    {"all filters", {.temperature = 1.3, .top_k = 12, .top_p = 0.9, .min_p = 0.05}},
    {"repetition", {.temperature = 1, .repetition_penalty = 1.7}},
    {"presence", {.temperature = 1, .presence_penalty = 1.5}},
    {"frequency", {.temperature = 1, .frequency_penalty = 0.8}},
    {"negative penalties",
     {.temperature = 1, .repetition_penalty = 0.6, .presence_penalty = -1, .frequency_penalty = -0.3}},
    {"all",
     {.temperature = 0.8,
      .top_k = 20,
      .top_p = 0.95,
      .min_p = 0.01,
      .repetition_penalty = 1.2,
      .presence_penalty = 0.5,
      .frequency_penalty = 0.2}},
    {"bias", {.temperature = 1}, {{7, 4}, {8, -1000}, {9, 1.5}, {9, 1.5}}},
    {"bias and penalties",
     {.temperature = 0.8, .top_k = 20, .repetition_penalty = 1.7, .presence_penalty = 0.5},
     {{3, 3.5}, {1, -0.5}, {9, 2}}},
};

class SamplerCases : public testing::TestWithParam<Case> {};

TEST_P(SamplerCases, DrawsTheOraclesDistribution) {
  const std::vector<float> logits = random_logits(40, 3);
  const std::vector<std::int32_t> prompt{1, 2, 3, 3};
  const std::vector<std::int32_t> text{3, 4, 4, 4, 5};
  const TokenHistory history = history_of(prompt, text, GetParam().biases);
  const std::vector<double> expected = oracle(logits, GetParam().params, prompt, text, GetParam().biases);

  constexpr int kDraws = 20'000;
  Sampler sampler(40);
  std::vector<int> counts(40, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    StepSample sample{.position = draw % 100, .params = GetParam().params};
    sample.params.seed = static_cast<std::uint64_t>(draw / 100);
    ++counts[static_cast<std::size_t>(sampler.sample(logits, sample, history.tokens()))];
  }
  EXPECT_TRUE(follows(counts, expected));
}

TEST_P(SamplerCases, KeepsExactlyTheOraclesTokens) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<float> logits = random_logits(25, seed);
    logits[7] = logits[3];  // a tie
    const std::vector<double> expected = oracle(logits, GetParam().params, {1, 2}, {2, 5, 5}, GetParam().biases);
    const TokenHistory history = history_of({1, 2}, {2, 5, 5}, GetParam().biases);
    Sampler sampler(25);
    std::map<std::int32_t, int> seen;
    for (int draw = 0; draw < 300; ++draw) {
      StepSample sample{.position = draw, .params = GetParam().params};
      sample.params.seed = seed;
      ++seen[sampler.sample(logits, sample, history.tokens())];
    }
    for (const auto& [id, count] : seen) EXPECT_GT(expected[static_cast<std::size_t>(id)], 0) << "id " << id;
    for (std::size_t id = 0; id < 25; ++id)
      EXPECT_TRUE(expected[id] <= 0.1 || seen.contains(static_cast<std::int32_t>(id))) << "id " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(, SamplerCases, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
});

TEST(Sampler, GreedyTakesTheLargestAndTheSmallestIdOfATie) {
  Sampler sampler(4);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, 2}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -5, -kInfinity, -6}, {}), 1);
}

TEST(Sampler, GreedyHonoursPenalties) {
  Sampler sampler(3);
  const StepSample sample{.params = {.repetition_penalty = 2}};
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3, 0}, sample, history_of({0}, {}).tokens()), 1);
  const StepSample presence{.params = {.presence_penalty = 2}};
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3, 0}, presence, history_of({0}, {}).tokens()), 0)
      << "a prompt's token";
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3, 0}, presence, history_of({}, {0}).tokens()), 1);
}

TEST(Sampler, ABiasIsNotScaledByThePenaltiesAndABiasedTokenIsNotOneSeenBefore) {
  Sampler sampler(3);
  const StepSample halved{.params = {.repetition_penalty = 2, .presence_penalty = 5}};
  // Seen, 4 / 2 + 2 is more than 3.5; (4 + 2) / 2 would be less.
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3.5, 0}, halved, history_of({0}, {}, {{0, 2}}).tokens()), 0);
  // Not seen: the bias alone counts.
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3.5, 0}, halved, history_of({}, {}, {{0, -0.25}}).tokens()), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3.5, 0}, {}, history_of({}, {}, {{2, 100}}).tokens()), 2);
}

TEST(Sampler, SameSeedAndPositionGiveTheSameToken) {
  const std::vector<float> logits = random_logits(1000, 1);
  Sampler sampler(1000);
  Sampler other(1000);
  std::map<std::int32_t, int> tokens;
  for (int position = 0; position < 50; ++position) {
    const StepSample sample{.position = position, .params = {.temperature = 2, .seed = 11}};
    const std::int32_t token = sampler.sample(logits, sample);
    EXPECT_EQ(token, other.sample(logits, sample));
    ++tokens[token];
  }
  EXPECT_GT(tokens.size(), 20u);
}

TEST(Sampler, AnExtremeTemperatureStaysFinite) {
  Sampler sampler(3);
  for (int position = 0; position < 100; ++position) {
    StepSample sample{.position = position, .params = {.temperature = 1e-300}};
    EXPECT_EQ(sampler.sample(std::vector<float>{1, 3e38f, -3e38f}, sample), 1);
    sample.params.temperature = 1e300;
    EXPECT_GE(sampler.sample(std::vector<float>{1, 3e38f, -3e38f}, sample), 0);
  }
}

TEST(Sampler, RefusesRowsOfABrokenModel) {
  Sampler sampler(3);
  for (const float bad : {std::nanf(""), kInfinity})
    EXPECT_THROW(sampler.sample(std::vector<float>{1, bad, 2}, {}), Failure);
  EXPECT_THROW(sampler.sample(std::vector<float>{-kInfinity, -kInfinity, -kInfinity}, {}), Failure);
  EXPECT_THROW(sampler.sample(std::vector<float>{1, 2}, {}), InvalidArgument);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  const std::vector<float> logits{0, 2, 1, 2, -kInfinity};
  const double log_sum = std::log(1 + 2 * std::exp(2.0) + std::exp(1.0));
  Sampler sampler(5);
  std::vector<TokenLogprob> top(3);
  EXPECT_NEAR(sampler.logprobs(logits, 2, top), 1 - log_sum, 1e-12);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 3);
  EXPECT_EQ(top[2].id, 2);
  EXPECT_NEAR(top[0].logprob, 2 - log_sum, 1e-12);
}

TEST(SamplingParams, OutOfRangeValuesAreNamed) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::pair<SamplingParams, const char*> cases[] = {
      {{.temperature = -1}, "temperature is -1"},
      {{.temperature = kNaN}, "temperature is nan"},
      {{.temperature = kInfinity}, "temperature is inf"},
      {{.top_k = -1}, "top_k is -1"},
      {{.top_p = 0}, "top_p is 0"},
      {{.top_p = 1.5}, "top_p is 1.5"},
      {{.min_p = -0.1}, "min_p"},
      {{.min_p = kNaN}, "min_p"},
      {{.repetition_penalty = 0}, "repetition_penalty is 0"},
      {{.presence_penalty = kInfinity}, "presence_penalty"},
      {{.frequency_penalty = kNaN}, "frequency_penalty"},
  };
  for (const auto& [params, message] : cases) {
    try {
      validate(params);
      ADD_FAILURE() << "not refused: " << message;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
  validate(SamplingParams{});
}

TEST(Sampler, RanksTokensByTheirLogitAndThenByTheirId) {
  const std::vector<float> logits{1, 3, 2, 3};
  EXPECT_EQ(rank_among(logits, 1), 1);
  EXPECT_EQ(rank_among(logits, 3), 2);
  EXPECT_EQ(rank_among(logits, 2), 3);
  EXPECT_EQ(rank_among(logits, 0), 4);
}

}  // namespace
}  // namespace heddle
