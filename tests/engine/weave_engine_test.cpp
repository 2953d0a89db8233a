// An engine whose steps are computed in two parts on several ranks: the same tokens as of whole steps, whatever runs beside
// a request, and errors that name the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using WovenOutputs = std::map<std::int64_t, std::vector<std::int32_t>>;

// From one tile of the CPU's GEMMs in each part on.
constexpr SplitOptions kEveryStep{.kind = SplitKind::smart, .min_tokens = 1};

// Counts the steps that come in two parts; may throw in one of them.
class CountingParts : public Model {
 public:
  CountingParts(std::unique_ptr<Model> model, int& in_parts, int fails_in)
      : model_(std::move(model)), in_parts_(in_parts), fails_in_(fails_in) {}

  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr && step.num_parts() == kMostParts && ++in_parts_ == fails_in_)
      throw Failure("the disk has melted");
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
  int& in_parts_;
  int fails_in_;
};

RankModels woven_ranks(int ranks, int watched = 0, int* in_parts = nullptr, int fails_in = 0,
                       TpMode mode = TpMode::weave) {
  RankModels models = load_ranks(Checkpoint(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa"),
                                 {.tp_mode = mode}, ranks);
  if (in_parts != nullptr) {
    std::unique_ptr<Model>& model = models[static_cast<std::size_t>(watched)].model;
    model = std::make_unique<CountingParts>(std::move(model), *in_parts, fails_in);
  }
  return models;
}

std::vector<Request> prompts_of_many_lengths() {
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (const std::size_t length : {47u, 3u, 33u, 60u, 18u}) {
    Request request{.prompt = std::vector<std::int32_t>(length), .max_tokens = 6};
    for (auto& token : request.prompt) token = static_cast<std::int32_t>(random() % 331);
    request.sampling = {.temperature = 0.9, .top_k = 40, .seed = length};
    requests.push_back(request);
  }
  return requests;
}

// Too few pages of `page_size` tokens for the requests together: some must be preempted.
std::size_t bytes_of_few_pages(int ranks, int page_size) {
  constexpr int kTokens =
      80;  // of the 191 that all of them come to; the longest has 66, and the one to be cancelled 70
  return cache_bytes(woven_ranks(ranks), page_size, kTokens / page_size);
}

void take_step(Engine& engine, WovenOutputs& outputs) {
  for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output.token);
}

// One request at a time, in whole steps.
std::vector<std::vector<std::int32_t>> tokens_alone(int ranks) {
  std::vector<std::vector<std::int32_t>> tokens;
  for (const Request& request : prompts_of_many_lengths()) {
    Engine engine(woven_ranks(ranks), {});
    WovenOutputs outputs;
    const std::int64_t id = engine.submit(request);
    while (!engine.idle()) take_step(engine, outputs);
    tokens.push_back(outputs[id]);
  }
  return tokens;
}

// Prompts in chunks beside sequences that decode, with preemption, and one that is cancelled.
TEST(WovenEngine, ARequestsTokensDependOnNoParts) {
  for (const int ranks : {2, 3}) {
    const auto expected = tokens_alone(ranks);
    const EngineOptions variants[] = {
        {.max_sequences = 8, .max_tokens_per_step = 64, .split = kEveryStep},
        {.threads = 3, .max_sequences = 8, .max_tokens_per_step = 37, .page_size = 3, .split = kEveryStep},
        {.max_sequences = 8,
         .max_tokens_per_step = 40,
         .page_size = 4,
         .kv_bytes = bytes_of_few_pages(ranks, 4),
         .split = kEveryStep}};
    for (const EngineOptions& options : variants) {
      const bool few_pages = options.kv_bytes > 0;
      int in_parts = 0;
      Engine engine(woven_ranks(ranks, 0, &in_parts), options);
      WovenOutputs outputs;
      const std::int64_t cancelled = engine.submit({.prompt = std::vector<std::int32_t>(50, 9), .max_tokens = 20});
      std::vector<std::int64_t> ids;
      for (const Request& request : prompts_of_many_lengths()) {
        ids.push_back(engine.submit(request));
        if (ids.size() == 3) take_step(engine, outputs);
      }
      engine.cancel(cancelled);
      while (!engine.idle()) take_step(engine, outputs);
      for (std::size_t i = 0; i < ids.size(); ++i)
        EXPECT_EQ(outputs[ids[i]], expected[i]) << "request " << i << " on " << ranks << " ranks";
      EXPECT_GT(in_parts, 1);
      EXPECT_EQ(engine.status().counters.num_preemptions > 0, few_pages) << ranks << " ranks";
    }
  }
}

TEST(WovenEngine, SmallStepsStayWhole) {
  int in_parts = 0;
  Engine engine(woven_ranks(2, 0, &in_parts), {.split = {.kind = SplitKind::smart, .min_tokens = 48}});
  WovenOutputs outputs;
  engine.submit({.prompt = std::vector<std::int32_t>(47, 3), .max_tokens = 4});
  while (!engine.idle()) take_step(engine, outputs);
  EXPECT_EQ(in_parts, 0);
  engine.submit({.prompt = std::vector<std::int32_t>(48, 3), .max_tokens = 4});
  while (!engine.idle()) take_step(engine, outputs);
  EXPECT_EQ(in_parts, 1);
  const PartCounts& counts = engine.part_counts();
  EXPECT_EQ(counts.in_two_parts, 1);
  EXPECT_EQ(counts.below_two_tiles, 0);
  EXPECT_EQ(counts.steps, 8);
  EXPECT_GT(counts.tile_tokens, 0);
}

TEST(WovenEngine, StepsOfFewerThanTwoTilesAreCounted) {
  Engine engine(woven_ranks(2), {.split = kEveryStep});
  WovenOutputs outputs;
  engine.submit({.prompt = std::vector<std::int32_t>(3, 3), .max_tokens = 4});
  while (!engine.idle()) take_step(engine, outputs);
  EXPECT_EQ(engine.part_counts().below_two_tiles, 4);
  EXPECT_EQ(engine.part_counts().in_two_parts, 0);
}

// Each of a rank's lanes begins its steps late at random.
class LateModel : public Model {
 public:
  LateModel(std::unique_ptr<Model> model, unsigned seed) : model_(std::move(model)), random_(seed) {}

  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr) {
      sleep_at_random(execution.compute.stream);
      if (execution.transfers != nullptr) sleep_at_random(execution.transfers->stream());
    }
    return model_->run(step, kv, arena, execution);
  }

 private:
  void sleep_at_random(Stream& stream) {
    if (random_() % 3 != 0) return;
    const std::chrono::microseconds time(random_() % 500);
    stream.enqueue([time](ThreadPool&) { std::this_thread::sleep_for(time); });
  }

  std::unique_ptr<Model> model_;
  std::minstd_rand random_;
};

// That each mode's engine takes at least.
std::int64_t late_steps() {
  const char* const given = std::getenv("HEDDLE_LATE_STEPS");
  return given == nullptr ? 1 : std::stol(given);
}

// Prompts in chunks beside sequences that decode, with preemption, and one that is cancelled, in every mode. In weave_soak.sh
// the engine of each mode takes 10 000 steps.
TEST(WovenEngine, LateRanksChangeNoTokenInAnyMode) {
  static const auto expected = tokens_alone(3);
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed());
  for (const TpMode mode : {TpMode::standard, TpMode::symmetric, TpMode::fused, TpMode::weave}) {
    RankModels ranks = woven_ranks(3, 0, nullptr, 0, mode);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank].model = std::make_unique<LateModel>(std::move(ranks[rank].model), seed + static_cast<unsigned>(rank));
    EngineOptions options{
        .max_sequences = 8, .max_tokens_per_step = 40, .page_size = 4, .kv_bytes = bytes_of_few_pages(3, 4)};
    if (mode == TpMode::weave) options.split = kEveryStep;
    Engine engine(std::move(ranks), options);
    do {
      WovenOutputs outputs;
      const std::int64_t cancelled = engine.submit({.prompt = std::vector<std::int32_t>(50, 9), .max_tokens = 20});
      std::vector<std::int64_t> ids;
      for (const Request& request : prompts_of_many_lengths()) ids.push_back(engine.submit(request));
      for (int steps = 0; !engine.idle(); ++steps) {
        if (steps == 9) engine.cancel(cancelled);
        take_step(engine, outputs);
      }
      for (std::size_t i = 0; i < ids.size(); ++i)
        ASSERT_EQ(outputs[ids[i]], expected[i]) << "request " << i << ", " << name_of(mode) << ", seed " << seed;
    } while (engine.part_counts().steps < late_steps());
    EXPECT_GT(engine.status().counters.num_preemptions, 0) << name_of(mode);
  }
}

// While the other ranks' lanes of transfers wait for it.
TEST(WovenEngine, AFaultInAStepInPartsEndsAllRanksAndIsNamed) {
  for (const int faulty : {0, 2}) {
    const auto start = std::chrono::steady_clock::now();
    int in_parts = 0;
    Engine engine(woven_ranks(3, faulty, &in_parts, 2),
                  {.max_sequences = 8, .max_tokens_per_step = 40, .split = kEveryStep});
    engine.submit({.prompt = std::vector<std::int32_t>(120, 3), .max_tokens = 4});
    WovenOutputs outputs;
    try {
      while (!engine.idle()) take_step(engine, outputs);
      ADD_FAILURE() << "no error";
    } catch (const Failure& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank " + std::to_string(faulty) + ": the disk has melted"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
  }
}

}  // namespace
}  // namespace heddle
