// The engine on a GPU: the CPU's tokens, sampled there. Skipped without a GPU.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "gpu_here.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using TokensById = std::map<std::int64_t, std::vector<std::int32_t>>;

class EngineOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

// A float32 model: CPU and GPU logits differ only by rounding in another order.
Engine engine_on(Device device, const EngineOptions& options) {
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return Engine(load_model(Checkpoint(folder), {.device = device}), options);
}

std::vector<Request> mixed_requests(int count, std::optional<int> num_top_logprobs = {}) {
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.sampling = {.temperature = i % 3 == 0 ? 0.0 : 0.9,
                                 .top_k = i % 4 == 1 ? 40 : 0,
                                 .top_p = i % 4 == 2 ? 0.8 : 1.0,
                                 .min_p = i % 4 == 3 ? 0.02 : 0.0,
                                 .repetition_penalty = i % 8 == 5 ? 1.3 : 1.0,
                                 .presence_penalty = i % 9 == 4 ? 0.7 : 0.0,
                                 .frequency_penalty = i % 7 == 6 ? 0.4 : 0.0,
                                 .seed = static_cast<std::uint64_t>(i)},
                    .max_tokens = 20};
    request.prompt.resize(1 + random() % 30);
    for (auto& token : request.prompt) token = static_cast<std::int32_t>(random() % 331);
    if (i % 5 == 3)
      for (int bias = 0; bias < 40; ++bias)
        request.logit_bias.push_back({static_cast<std::int32_t>(random() % 331), bias % 2 == 0 ? 3.0 : -5.0});
    request.num_top_logprobs = num_top_logprobs;
    requests.push_back(std::move(request));
  }
  return requests;
}

TokensById tokens_of(Engine engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) engine.submit(request);
  TokensById tokens;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      EXPECT_EQ(output.error, "");
      tokens[output.request].push_back(output.token);
    }
  return tokens;
}

int num_different(const TokensById& a, const TokensById& b) {
  int count = 0;
  for (const auto& [id, tokens] : a) count += !b.contains(id) || b.at(id) != tokens;
  return count;
}

TEST_F(EngineOnGpu, GivesTheTokensOfTheCpu) {
  constexpr std::int64_t kPageBytes = 16 * 2 * 3 * 2 * 24 * 4;  // of 16 tokens
  const std::vector<Request> requests = mixed_requests(24);
  const TokensById expected = tokens_of(engine_on({}, {.threads = 2}), requests);
  ASSERT_EQ(expected.size(), requests.size());
  const EngineOptions variants[] = {
      {},
      {.max_sequences = 11, .max_tokens_per_step = 17, .page_size = 16},
      {.max_sequences = 12, .page_size = 16, .kv_bytes = 20 * kPageBytes},  // sequences give way to others
      {.overlap = Overlap::off},
  };
  for (const EngineOptions& options : variants)
    EXPECT_EQ(num_different(expected, tokens_of(engine_on(kFirstGpu, options), requests)), 0);
}

// Each way to sample, from logits of all ranks' tokens.
TEST_F(EngineOnGpu, RanksThatShareItGiveTheTokensOfTheCpu) {
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  const std::vector<Request> requests = mixed_requests(12);
  const TokensById expected = tokens_of(engine_on({}, {.threads = 2}), requests);
  for (const int ranks : {2, 4}) {
    prepare_shared_gpus(std::vector<Device>(static_cast<std::size_t>(ranks), kFirstGpu));
    const TokensById tokens = tokens_of(
        Engine(load_ranks(Checkpoint(folder), {.device = kFirstGpu}, ranks), {.max_sequences = 11, .page_size = 16}),
        requests);
    EXPECT_EQ(num_different(expected, tokens), 0) << ranks;
  }
}

// When log-probabilities are requested, the host samples.
TEST_F(EngineOnGpu, SamplesThereAsOnTheHost) {
  const TokensById there = tokens_of(engine_on(kFirstGpu, {}), mixed_requests(16));
  const TokensById on_host = tokens_of(engine_on(kFirstGpu, {}), mixed_requests(16, 0));
  EXPECT_EQ(num_different(there, on_host), 0);
}

// Steps are in flight when a request is cancelled; the tokens of the others must not change.
TEST_F(EngineOnGpu, ACancelledRequestLeavesTheOthers) {
  const std::vector<Request> requests = mixed_requests(12);
  const TokensById expected = tokens_of(engine_on({}, {.threads = 2}), requests);
  for (const int at : {0, 1, 2, 7}) {
    Engine engine = engine_on(kFirstGpu, {.page_size = 16});
    for (const Request& request : requests) engine.submit(request);
    TokensById tokens;
    for (int step = 0; !engine.idle(); ++step) {
      if (step == at) engine.cancel(3);
      for (const TokenOutput& output : engine.step()) tokens[output.request].push_back(output.token);
    }
    tokens[3] = expected.at(3);
    EXPECT_EQ(num_different(expected, tokens), 0) << at;
  }
}

TEST_F(EngineOnGpu, AConversationGoesOnInPagesThatWereKept) {
  const auto talk = [](Engine engine) {
    std::vector<std::int32_t> all{3, 1, 4, 1, 5};
    std::vector<int> computed;
    for (int turn = 0; turn < 3; ++turn) {
      engine.submit({.prompt = all, .max_tokens = 9, .after_end = AfterEnd::keep});
      int prompt_tokens = 0;
      while (!engine.idle()) {
        for (const TokenOutput& output : engine.step()) all.push_back(output.token);
        prompt_tokens += engine.last_step().num_prompt_tokens;
      }
      computed.push_back(prompt_tokens);
      all.insert(all.end(), {static_cast<std::int32_t>(20 + turn), 30});
    }
    return std::pair(all, computed);
  };
  const auto expected = talk(engine_on({}, {.threads = 2, .page_size = 16}));
  EXPECT_EQ(talk(engine_on(kFirstGpu, {.page_size = 16})), expected);
  EXPECT_LT(expected.second.back(), 6);
}

}  // namespace
}  // namespace heddle
