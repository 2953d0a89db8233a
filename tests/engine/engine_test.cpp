#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kContext = 128;  // of the golden models
constexpr std::int64_t kVocab = 331;

Engine make_engine(const EngineOptions& options = {}) {
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return Engine(load_model(Checkpoint(folder), {}), options);
}

std::vector<std::int32_t> random_prompt(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(1 + random() % 40);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kVocab);
  return tokens;
}

Request request_of(unsigned seed, std::int64_t max_tokens = 12, double temperature = 0.9) {
  return {.prompt = random_prompt(seed),
          .sampling = {.temperature = temperature, .top_k = 50, .seed = 3},
          .max_tokens = max_tokens};
}

void step(Engine& engine, std::map<std::int64_t, std::vector<std::int32_t>>& tokens) {
  for (const TokenOutput& output : engine.step()) tokens[output.request].push_back(output.token);
}

// Runs until idle; the tokens of each request, by id.
std::map<std::int64_t, std::vector<std::int32_t>> run(Engine& engine) {
  std::map<std::int64_t, std::vector<std::int32_t>> tokens;
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 10'000, "the engine makes no progress");
    step(engine, tokens);
  }
  return tokens;
}

std::vector<std::int32_t> alone(const Request& request) {
  Engine engine = make_engine();
  engine.submit(request);
  return run(engine).begin()->second;
}

TEST(Engine, ARequestsTokensDependOnNothingBesideIt) {
  constexpr unsigned kRequests = 12;
  const EngineOptions variants[] = {
      {.threads = 2},
      {.max_sequences = 3},
      {.max_sequences = 4, .max_tokens_per_step = 5, .page_size = 3},
      {.max_sequences = 12,
       .max_tokens_per_step = 16,
       .page_size = 4,
       .kv_bytes = 20 * 2 * 3 * 4 * 2 * 24 * 4},  // 20 pages
  };
  std::vector<std::vector<std::int32_t>> expected;
  for (unsigned i = 0; i < kRequests; ++i) expected.push_back(alone(request_of(i)));
  for (const EngineOptions& options : variants) {
    Engine engine = make_engine(options);
    std::vector<std::int64_t> ids;
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    for (unsigned i = 0; i < kRequests; ++i) {
      ids.push_back(engine.submit(request_of(i)));
      if (i % 4 == 3) step(engine, tokens);  // some arrive while others run
    }
    while (!engine.idle()) step(engine, tokens);
    for (unsigned i = 0; i < kRequests; ++i) EXPECT_EQ(tokens[ids[i]], expected[i]) << "request " << i;
  }
}

TEST(Engine, SameSeedSameTokensAnotherSeedOthers) {
  Request request = request_of(1, 30);
  EXPECT_EQ(alone(request), alone(request));
  const auto before = alone(request);
  request.sampling.seed = 4;
  EXPECT_NE(alone(request), before);
}

TEST(Engine, GreedyTokensAreThoseOfTheLogprobs) {
  Request request = request_of(2, 20, 0);
  request.num_top_logprobs = 2;
  Engine engine = make_engine();
  engine.submit(request);
  int seen = 0;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      ASSERT_EQ(output.top.size(), 2u);
      EXPECT_EQ(output.top[0].id, output.token);
      EXPECT_EQ(output.top[0].logprob, *output.logprob);
      EXPECT_GE(output.top[0].logprob, output.top[1].logprob);
      EXPECT_LT(*output.logprob, 0);
      ++seen;
    }
  EXPECT_EQ(seen, 20);
}

TEST(Engine, EndsAtMaxTokensAtAStopTokenAndAtTheContextsEnd) {
  const auto tokens = alone(request_of(5, 10));
  const auto finish_of = [](const Request& request) {
    Engine engine = make_engine();
    engine.submit(request);
    std::pair<std::size_t, std::optional<FinishReason>> result{};
    while (!engine.idle())
      for (const TokenOutput& output : engine.step()) {
        ++result.first;
        result.second = output.finish;
      }
    return result;
  };
  Request request = request_of(5, 10);
  EXPECT_EQ(finish_of(request), std::pair(std::size_t{10}, std::optional(FinishReason::length)));
  request.stop_ids = {-1, tokens[4]};
  const auto first = static_cast<std::size_t>(std::ranges::find(tokens, tokens[4]) - tokens.begin()) + 1;
  EXPECT_EQ(finish_of(request), std::pair(first, std::optional(FinishReason::stop)));
  request = request_of(5, std::int64_t{1} << 60);
  EXPECT_EQ(finish_of(request),
            std::pair(static_cast<std::size_t>(kContext) - request.prompt.size(), std::optional(FinishReason::length)));
}

TEST(Engine, ACancelledRequestGivesNoMoreTokensAndLeavesTheOthers) {
  Engine engine = make_engine();
  const std::int64_t first = engine.submit(request_of(1));
  const std::int64_t second = engine.submit(request_of(2));
  engine.step();
  engine.cancel(first);
  engine.cancel(first);
  engine.cancel(12345);
  const auto tokens = run(engine);
  EXPECT_FALSE(tokens.contains(first));
  EXPECT_TRUE(tokens.contains(second));
  EXPECT_TRUE(engine.step().empty());
}

TEST(Engine, BadRequestsAreRefusedByName) {
  Engine engine = make_engine();
  const auto error_of = [&](Request request) {
    try {
      engine.submit(std::move(request));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of({}), HasSubstr("no tokens"));
  EXPECT_THAT(error_of({.prompt = {1, 331}}), HasSubstr("token 331, the model knows 0 to 330"));
  EXPECT_THAT(error_of({.prompt = {-1}}), HasSubstr("token -1"));
  EXPECT_THAT(error_of({.prompt = std::vector<std::int32_t>(128, 1)}),
              HasSubstr("has 128 tokens, the model's context is 128"));
  EXPECT_THAT(error_of({.prompt = {1}, .max_tokens = 0}), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(error_of({.prompt = {1}, .sampling = {.top_p = 2}}), HasSubstr("top_p is 2"));
  EXPECT_THAT(error_of({.prompt = {1}, .num_top_logprobs = 332}), HasSubstr("logprobs is 332"));
  EXPECT_THAT(error_of({.prompt = {1}, .num_top_logprobs = -1}), HasSubstr("logprobs is -1"));
  EXPECT_TRUE(engine.idle());

  Engine small = make_engine({.page_size = 4, .kv_bytes = 3 * 2 * 3 * 4 * 2 * 24 * 4});
  EXPECT_EQ(small.max_length(), 12);
  EXPECT_THROW(small.submit({.prompt = std::vector<std::int32_t>(12, 1)}), InputError);
  EXPECT_THROW(make_engine({.kv_bytes = 100}), Failure);
}

// A model whose logits are not numbers for the token 13, and fixed otherwise; or that fails as a whole.
class FaultyModel : public Model {
 public:
  const ModelShape& shape() const override { return shape_; }
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Lane& lane) override {
    const Tensor logits = arena.take(step.num_logit_rows, 16, DType::float32);
    if (lane.dry_run != nullptr) return logits;
    lane.stream.enqueue([step, logits, fails = std::exchange(fails_next, false)](ThreadPool&) {
      if (fails) throw Failure("the device is gone");
      for (int i = 0; i < step.num_logit_rows; ++i)
        for (int id = 0; id < 16; ++id)
          static_cast<float*>(logits.data)[i * 16 + id] =
              step.tokens[step.logit_rows[i]] == 13 ? NAN : static_cast<float>(id % 12);
    });
    return logits;
  }
  bool fails_next = false;

 private:
  ModelShape shape_{.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .vocab_size = 16, .max_context = 64};
};

TEST(Engine, ARequestWhoseLogitsAreNotNumbersEndsAloneWithTheReason) {
  Engine engine(std::make_unique<FaultyModel>(), {});
  const std::int64_t sound = engine.submit({.prompt = {1}, .max_tokens = 5});
  const std::int64_t broken = engine.submit({.prompt = {13}, .max_tokens = 5});
  int sound_tokens = 0;
  int errors = 0;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      if (output.request == sound) ++sound_tokens;
      if (output.request != broken) continue;
      EXPECT_EQ(output.finish, FinishReason::error);
      EXPECT_THAT(output.error, HasSubstr("logits are not finite at position 1: token 0 has nan"));
      ++errors;
    }
  EXPECT_EQ(sound_tokens, 5);
  EXPECT_EQ(errors, 1);
}

TEST(Engine, AStepThatFailsIsReportedAndMayBeTriedAgain) {
  auto model = std::make_unique<FaultyModel>();
  FaultyModel& faulty = *model;
  Engine engine(std::move(model), {});
  engine.submit({.prompt = {1, 2, 3}, .max_tokens = 2});
  faulty.fails_next = true;
  EXPECT_THROW(engine.step(), Failure);
  EXPECT_EQ(run(engine).begin()->second.size(), 2u);
}

TEST(Engine, CountsWhatAStepReads) {
  Engine engine = make_engine();
  engine.submit(request_of(1, 3));
  engine.step();
  EXPECT_EQ(engine.last_step().num_prompt_tokens, std::ssize(random_prompt(1)));
  EXPECT_EQ(engine.last_step().num_sampled, 1);
  engine.step();
  EXPECT_EQ(engine.last_step().num_prompt_tokens, 0);
  const std::size_t kv_per_token = 2 * 3 * 2 * 24 * 4;  // keys and values, layers, heads, head_dim, float32
  EXPECT_EQ(engine.last_step().bytes_read,
            engine.model_shape().weight_bytes_per_step + kv_per_token * (random_prompt(1).size() + 1));
}

}  // namespace
}  // namespace heddle
