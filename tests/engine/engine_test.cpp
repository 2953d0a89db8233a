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
#include "weights/safetensors_builder.h"

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

// On the host, and by the stream as on a GPU.
TEST(Engine, ALogitBiasForcesAndForbidsTokensOfItsRequestAlone) {
  for (const Overlap overlap : {Overlap::off, Overlap::on}) {
    for (const double repetition_penalty : {1.0, 1.3}) {
      Request request = request_of(5, 10);
      request.sampling.repetition_penalty = repetition_penalty;
      Request forced = request, forbidden = request;
      forced.logit_bias = {{7, 600}, {7, 400}};  // they add up
      std::map<std::int64_t, std::vector<std::int32_t>> tokens;
      Engine engine = make_engine({.overlap = overlap});
      const std::int64_t plain = engine.submit(request);
      const std::vector<std::int32_t> expected = alone(request);
      for (const std::int32_t token : expected) forbidden.logit_bias.push_back({token, -1000});
      const std::int64_t forced_id = engine.submit(forced), forbidden_id = engine.submit(forbidden);
      tokens = run(engine);
      EXPECT_EQ(tokens[plain], expected);
      EXPECT_THAT(tokens[forced_id], testing::AllOf(testing::SizeIs(10), testing::Each(7)));
      EXPECT_EQ(tokens[forbidden_id].size(), 10u);
      for (const std::int32_t token : tokens[forbidden_id])
        EXPECT_THAT(expected, testing::Not(testing::Contains(token)));
    }
  }
}

TEST(Engine, ALogitBiasOutOfRangeIsRefused) {
  Engine engine = make_engine();
  const auto error = [&](std::vector<LogitBias> biases) {
    Request request = request_of(1);
    request.logit_bias = std::move(biases);
    return message_of<InputError>([&] { engine.submit(request); });
  };
  EXPECT_EQ(error({{331, 1}}), "logit_bias has token 331, the model knows 0 to 330");
  EXPECT_THAT(error({{-1, 1}}), HasSubstr("token -1"));
  EXPECT_EQ(error({{3, 1001}}), "logit_bias of token 3 is 1001, it must be from -1000 to 1000");
  EXPECT_THAT(error({{3, std::nan("")}}), HasSubstr("token 3 is nan"));
  EXPECT_THAT(error(std::vector<LogitBias>(1025, {3, 1})), HasSubstr("has 1025 tokens, at most 1024"));
  EXPECT_TRUE(engine.idle());
}

TEST(Engine, AContextLimitEndsTextsThereAndTakesLessMemory) {
  Engine limited = make_engine({.max_context = 45});
  EXPECT_EQ(limited.max_length(), 45);
  Request request = request_of(5, 1000);
  const std::size_t length = request.prompt.size();
  limited.submit(request);
  const std::vector<std::int32_t> whole = alone(request), tokens = run(limited).begin()->second;
  EXPECT_EQ(tokens, std::vector<std::int32_t>(whole.begin(), whole.begin() + 45 - static_cast<std::ptrdiff_t>(length)));
  EXPECT_EQ(make_engine({.max_context = 1000}).max_length(), kContext) << "a larger limit changes nothing";
  request.prompt.assign(45, 1);
  EXPECT_THAT(message_of<InputError>([&] { limited.submit(request); }),
              HasSubstr("45 tokens, the context is limited to 45 and must hold the answer too"));

  const auto model = load_model(Checkpoint(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa"), {});
  const ExecutorLimits all = executor_limits(*model, {}, 0), few = executor_limits(*model, {.max_context = 45}, 0);
  EXPECT_EQ(few.num_pages, 64 * 2);
  EXPECT_EQ(all.num_pages, 64 * 4);
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
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Execution& execution) override {
    const Tensor logits = arena.take(step.num_logit_rows, 16, DType::float32);
    if (execution.compute.dry_run != nullptr) return logits;
    execution.compute.stream.enqueue([step, logits, fails = std::exchange(fails_next, false)](ThreadPool&) {
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
  ModelShape shape_{.num_layers = 1, .kv = keys_and_values(1, 2, DType::float32), .vocab_size = 16, .max_context = 64};
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
