// An engine whose ranks divide the keys and values of each text by position (--cp): the tokens of one rank, and texts that
// no single rank's cache could hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using ContextOutputs = std::map<std::int64_t, std::vector<std::int32_t>>;

constexpr int kContextVocabulary = 331;

// 6 heads on 2 of keys and values.
RankModels context_ranks(int tensor_ranks, int context_ranks) {
  return load_ranks(Checkpoint(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa"),
                    {.context_ranks = context_ranks}, tensor_ranks * context_ranks);
}

std::vector<std::int32_t> context_tokens(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kContextVocabulary);
  return tokens;
}

std::vector<Request> context_requests() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i)
    requests.push_back({.prompt = context_tokens(i, 1 + 9 * i),
                        .sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .top_k = i % 2 == 0 ? 0 : 50, .seed = i},
                        .max_tokens = 8});
  return requests;
}

ContextOutputs context_outputs(Engine& engine, const std::function<void(int)>& before_step = {}) {
  ContextOutputs outputs;
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 10'000, "the engine makes no progress");
    if (before_step) before_step(steps);
    for (const TokenOutput& output : engine.step())
      if (!output.prompt_index) outputs[output.request].push_back(output.token);
  }
  return outputs;
}

ContextOutputs context_outputs(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) engine.submit(request);
  return context_outputs(engine);
}

// Bytes of `pages` pages of `page_size` tokens at each rank, of all ranks.
std::int64_t bytes_of_pages(int tensor_ranks, int context_ranks_, int page_size, int pages) {
  const RankModels ranks = outline_ranks(Checkpoint(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa"),
                                         {.context_ranks = context_ranks_}, tensor_ranks * context_ranks_);
  return static_cast<std::int64_t>(cache_bytes(ranks, page_size * context_ranks_, pages));
}

TEST(EngineContextRanks, ChooseTheTokensOfOneRank) {
  Engine alone(context_ranks(1, 1), {});
  const ContextOutputs expected = context_outputs(alone, context_requests());
  for (const auto& [tensor, context] : {std::pair(1, 2), std::pair(1, 3), std::pair(2, 2)}) {
    Engine engine(context_ranks(tensor, context), {.threads = 2, .page_size = 4});
    EXPECT_EQ(context_outputs(engine, context_requests()), expected) << tensor << " x " << context;
  }
}

// In chunks, with preemption, beside a request that is cancelled.
TEST(EngineContextRanks, ChunksPreemptionAndCancelledNeighboursChangeNoToken) {
  Engine alone(context_ranks(1, 1), {});
  const ContextOutputs expected = context_outputs(alone, context_requests());
  Engine engine(
      context_ranks(1, 2),
      {.max_sequences = 12, .max_tokens_per_step = 16, .page_size = 2, .kv_bytes = bytes_of_pages(1, 2, 2, 18)});
  for (const Request& request : context_requests()) engine.submit(request);
  const std::int64_t cancelled = engine.submit({.prompt = context_tokens(77, 30), .max_tokens = 40});
  ContextOutputs outputs = context_outputs(engine, [&](int steps) {
    if (steps == 3) engine.cancel(cancelled);
  });
  outputs.erase(cancelled);
  EXPECT_EQ(outputs, expected);
  EXPECT_GT(engine.status().counters.num_preemptions, 0);
}

TEST(EngineContextRanks, AKeptConversationGoesOnFromItsPages) {
  Request first{.prompt = context_tokens(1, 40), .max_tokens = 5, .after_end = AfterEnd::keep};
  Engine engine(context_ranks(1, 2), {.page_size = 4});
  const auto answer = context_outputs(engine, {first}).begin()->second;
  Request next{.prompt = first.prompt, .max_tokens = 6};
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  next.prompt.push_back(9);
  Engine fresh(context_ranks(1, 1), {});
  const auto expected = context_outputs(fresh, {next}).begin()->second;
  engine.submit(next);
  engine.step();
  EXPECT_LT(engine.last_step().num_prompt_tokens, 10);  // the rest is shared
  const auto rest = context_outputs(engine);
  ASSERT_FALSE(rest.empty());
  // What came with the first step is the first token.
  EXPECT_EQ(std::vector<std::int32_t>(expected.begin() + 1, expected.end()), rest.begin()->second);
}

// What the ranks have together is what counts: a rank alone with as many bytes refuses the prompt.
TEST(EngineContextRanks, APromptLongerThanOneRanksCacheRuns) {
  constexpr int kPage = 4, kPages = 16;  // 64 tokens at a rank
  const Request request{.prompt = context_tokens(5, 100), .max_tokens = 8};
  const EngineOptions one_ranks_cache{
      .max_sequences = 1, .page_size = kPage, .kv_bytes = bytes_of_pages(1, 1, kPage, kPages)};
  Engine alone(context_ranks(1, 1), one_ranks_cache);
  EXPECT_EQ(alone.max_length(), kPage * kPages);
  EXPECT_THROW(alone.submit(request), InputError);
  Engine large(context_ranks(1, 1), {});
  const auto expected = context_outputs(large, {request}).begin()->second;
  for (const int ranks : {2, 3}) {
    EngineOptions options = one_ranks_cache;
    options.kv_bytes = bytes_of_pages(1, ranks, kPage, kPages);  // of all: as many bytes at each
    Engine engine(context_ranks(1, ranks), options);
    EXPECT_EQ(engine.max_length(), std::min(ranks * kPage * kPages, 128)) << ranks;
    EXPECT_EQ(context_outputs(engine, {request}).begin()->second, expected) << ranks << " ranks";
  }
}

// Every key is at one rank, so that as many bytes are read as on one.
TEST(EngineContextRanks, CountTheKeysOnce) {
  Engine one(context_ranks(1, 1), {}), two(context_ranks(1, 2), {});
  std::size_t difference = 0;
  std::size_t first[2] = {};
  for (Engine* engine : {&one, &two}) {
    engine->submit({.prompt = context_tokens(3, 64), .max_tokens = 2});
    engine->step();
    first[engine == &two] = engine->last_step().bytes_read;
  }
  for (Engine* engine : {&one, &two}) {
    engine->step();
    difference = engine->last_step().bytes_read - first[engine == &two] - difference;
  }
  EXPECT_EQ(difference, 0u);
}

class FailingModel : public Model {
 public:
  FailingModel(std::unique_ptr<Model> model, int step) : model_(std::move(model)), step_(step) {}
  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr && --step_ == 0) throw Failure("the disk has melted");
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
  int step_;
};

// The others wait for its parts; they end at once, not at the deadline.
TEST(EngineContextRanks, ARankThatFailsIsNamedAndEndsAll) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [rank, step] : {std::pair(1, 1), std::pair(2, 4)}) {
    RankModels ranks = context_ranks(1, 3);
    auto& model = ranks[static_cast<std::size_t>(rank)].model;
    model = std::make_unique<FailingModel>(std::move(model), step);
    Engine engine(std::move(ranks), {});
    engine.submit({.prompt = context_tokens(9, 50), .max_tokens = 30});
    try {
      context_outputs(engine);
      ADD_FAILURE() << "no error";
    } catch (const Failure& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank) + ": the disk has melted"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace heddle
