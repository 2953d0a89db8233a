// Log-probabilities of a prompt's own tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace heddle::prompt_logprobs {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

const std::filesystem::path kFolder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
constexpr std::int64_t kVocab = 331;

Engine make_engine(const EngineOptions& options = {}) {
  return Engine(load_model(Checkpoint(kFolder), {}), options);
}

Tokens random_tokens(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kVocab);
  return tokens;
}

Request scored(Tokens prompt, PromptLogprobs wanted = {}, std::int64_t max_tokens = 0) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens, .prompt_logprobs = wanted};
}

// By request, all outputs in order.
std::map<std::int64_t, std::vector<TokenOutput>> run(Engine& engine) {
  std::map<std::int64_t, std::vector<TokenOutput>> outputs;
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 10'000, "the engine makes no progress");
    for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output);
  }
  return outputs;
}

std::vector<TokenOutput> alone(Request request, const EngineOptions& options = {}) {
  Engine engine = make_engine(options);
  engine.submit(std::move(request));
  return run(engine).begin()->second;
}

std::vector<double> logprobs_of(const std::vector<TokenOutput>& outputs) {
  std::vector<double> logprobs;
  for (const TokenOutput& output : outputs) logprobs.push_back(output.logprob.value());
  return logprobs;
}

// log_softmax of transformers' logits, in float64.
TEST(PromptLogprobs, AgreeWithTransformersLogits) {
  const Tokens tokens = parse_json(read_file(kFolder / "golden.json", 1 << 20), "golden.json")["tokens"];
  const SafetensorsFile file(kFolder / "golden.safetensors");
  const auto logits = std::ranges::find(file.tensors(), std::string_view("prefill"), &StoredTensor::name);
  ASSERT_NE(logits, file.tensors().end());
  const auto columns = static_cast<std::size_t>(logits->shape[1]);

  const auto outputs = alone(scored(tokens, {.num_top = 2}));
  ASSERT_EQ(outputs.size(), tokens.size() - 1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    std::vector<float> row(columns);
    std::memcpy(row.data(), logits->bytes.data() + i * columns * sizeof(float), columns * sizeof(float));
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    const double expected = static_cast<double>(row[static_cast<std::size_t>(tokens[i + 1])]) - std::log(sum);
    EXPECT_NEAR(*outputs[i].logprob, expected, 1e-4) << i;  // what float32 logits in another order may differ by
    EXPECT_EQ(outputs[i].token, tokens[i + 1]);
    EXPECT_EQ(outputs[i].prompt_index, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(outputs[i].top[0].id, std::ranges::max_element(row) - row.begin());
    EXPECT_EQ(outputs[i].finish.has_value(), i + 2 == tokens.size());
  }
}

TEST(PromptLogprobs, DependOnNothingBesideTheText) {
  const EngineOptions variants[] = {
      {.max_sequences = 1, .max_logit_rows = 1},  // a row at a time
      {.max_sequences = 3, .max_tokens_per_step = 7, .page_size = 3, .max_logit_rows = 5},
      {.max_sequences = 4,
       .max_tokens_per_step = 16,
       .page_size = 4,
       .kv_bytes = 20 * 2 * 3 * 4 * 2 * 24 * 4,
       .max_logit_rows = 9},  // 20 pages, for texts that take 25 each: preemption
  };
  std::vector<std::vector<double>> expected;
  for (unsigned i = 0; i < 6; ++i) expected.push_back(logprobs_of(alone(scored(random_tokens(i, 40 + i)))));
  for (const EngineOptions& options : variants) {
    Engine engine = make_engine(options);
    std::vector<std::int64_t> ids;
    for (unsigned i = 0; i < 6; ++i) {
      ids.push_back(engine.submit(scored(random_tokens(i, 40 + i))));
      engine.submit({.prompt = random_tokens(50 + i, 9), .max_tokens = 20});  // others sample beside them
    }
    auto outputs = run(engine);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(logprobs_of(outputs[ids[i]]), expected[i]) << "text " << i;
  }
}

TEST(PromptLogprobs, BeginWhereTheyAreAskedFor) {
  const Tokens text = random_tokens(1, 30);
  const auto all = logprobs_of(alone(scored(text)));
  const auto some = alone(scored(text, {.first = 21}));
  ASSERT_EQ(some.size(), 9u);
  EXPECT_EQ(some[0].prompt_index, 21);
  EXPECT_EQ(logprobs_of(some), std::vector<double>(all.begin() + 20, all.end()));
}

TEST(PromptLogprobs, ComeBeforeTheAnswersTokens) {
  const Tokens text = random_tokens(1, 30);
  const auto both = alone(scored(text, {}, 5));
  ASSERT_EQ(both.size(), 29u + 5);
  const auto all = logprobs_of(alone(scored(text)));
  for (std::size_t i = 0; i < 29; ++i) {
    EXPECT_EQ(both[i].logprob, all[i]);
    EXPECT_FALSE(both[i].finish);
  }
  const auto answer = alone({.prompt = text, .max_tokens = 5});
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(both[29 + i].token, answer[i].token);
    EXPECT_FALSE(both[29 + i].prompt_index);
  }
}

TEST(PromptLogprobs, OfATextThatBeginsAsAKeptOneAreAllThere) {
  const Tokens text = random_tokens(1, 30);
  const auto expected = logprobs_of(alone(scored(text)));
  Engine engine = make_engine();
  engine.submit({.prompt = text, .max_tokens = 3, .after_end = AfterEnd::keep});
  run(engine);
  engine.submit(scored(text));
  EXPECT_EQ(logprobs_of(run(engine).begin()->second), expected);
  engine.submit(scored(text, {.first = 21}));
  engine.step();
  EXPECT_EQ(engine.last_step().num_prompt_tokens, 9)
      << "the first 20 are in the cache and unwanted; the last is a label";
}

TEST(PromptLogprobs, OfATextThatFillsTheContext) {
  EXPECT_EQ(alone(scored(random_tokens(1, 128))).size(), 127u);
}

TEST(PromptLogprobs, WhatCannotBeScoredIsRefusedByName) {
  Engine engine = make_engine();
  const auto error_of = [&](Request request) {
    try {
      engine.submit(std::move(request));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of(scored({5})), HasSubstr("a text's first token has no log-probability"));
  EXPECT_THAT(error_of(scored({})), HasSubstr("no tokens"));
  EXPECT_THAT(error_of(scored({1, 2, 331})), HasSubstr("token 331"));
  EXPECT_THAT(error_of(scored({1, 2, 3}, {.first = 0})),
              HasSubstr("from token 0 of a prompt of 3 tokens: give 1 to 2"));
  EXPECT_THAT(error_of(scored({1, 2, 3}, {.first = 3})), HasSubstr("from token 3"));
  EXPECT_THAT(error_of(scored({1, 2, 3}, {.num_top = 332})), HasSubstr("logprobs is 332"));
  EXPECT_THAT(error_of(scored(random_tokens(1, 129))),
              HasSubstr("has 129 tokens, the model's context is 128: shorten"));
  EXPECT_TRUE(engine.idle());
}

// Logits that are NaN after the token 13, and fixed otherwise.
class FaultyModel : public Model {
 public:
  const ModelShape& shape() const override { return shape_; }
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Execution& execution) override {
    const Tensor logits = arena.take(step.num_logit_rows, 16, DType::float32);
    if (execution.compute.dry_run != nullptr) return logits;
    execution.compute.stream.enqueue([step, logits](ThreadPool&) {
      for (int i = 0; i < step.num_logit_rows; ++i)
        for (int id = 0; id < 16; ++id)
          static_cast<float*>(logits.data)[i * 16 + id] = step.tokens[step.logit_rows[i]] == 13
                                                              ? std::numeric_limits<float>::quiet_NaN()
                                                              : static_cast<float>(id % 12);
    });
    return logits;
  }

 private:
  ModelShape shape_{.num_layers = 1, .kv = keys_and_values(1, 2, DType::float32), .vocab_size = 16, .max_context = 64};
};

TEST(PromptLogprobs, LogitsThatAreNoNumbersEndTheirTextAloneAndNameTheToken) {
  Engine engine(std::make_unique<FaultyModel>(), {});
  const std::int64_t broken = engine.submit(scored({1, 2, 13, 4, 5, 6}));
  const std::int64_t sound = engine.submit(scored({1, 2, 3, 4}));
  auto outputs = run(engine);
  EXPECT_EQ(outputs[sound].size(), 3u);
  ASSERT_EQ(outputs[broken].size(), 3u);
  EXPECT_EQ(outputs[broken].back().finish, FinishReason::error);
  EXPECT_THAT(outputs[broken].back().error, HasSubstr("logits are not finite at position 3: token 0 has nan"));
}

}  // namespace
}  // namespace heddle::prompt_logprobs
