// Steps that start before the tokens of the previous ones are known; here on the CPU, where the engine does so only on
// request. Results must not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kOnePageOf4 = 2 * 3 * 4 * 2 * 24 * 4;  // bytes of the golden model's cache

Engine golden_engine(Overlap overlap, EngineOptions options = {}) {
  options.overlap = overlap;
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return Engine(load_model(Checkpoint(folder), {}), options);
}

Request varied_request(unsigned seed) {
  std::mt19937 random(seed);
  Request request{.sampling = {.temperature = seed % 3 == 0 ? 0.0 : 0.9,
                               .top_k = seed % 4 == 1 ? 40 : 0,
                               .repetition_penalty = seed % 5 == 2 ? 1.4 : 1.0,
                               .presence_penalty = seed % 7 == 3 ? 0.5 : 0.0,
                               .frequency_penalty = seed % 5 == 4 ? 0.3 : 0.0,
                               .seed = seed},
                  .max_tokens = 1 + static_cast<int>(random() % 20)};
  request.prompt.resize(1 + random() % 30);
  for (auto& token : request.prompt) token = static_cast<std::int32_t>(random() % 331);
  if (seed % 6 == 5) request.stop_ids = {static_cast<std::int32_t>(random() % 331), 7, 8, 9, 10, 11, 12, 13};
  if (seed % 6 >= 4)  // with and without penalties
    for (int i = 0; i < 40; ++i)
      request.logit_bias.push_back({static_cast<std::int32_t>(random() % 331), i % 2 == 0 ? 3.0 : -5.0});
  if (seed % 8 == 6) request.num_top_logprobs = 2;
  if (seed % 8 == 7 && request.prompt.size() > 1) request.prompt_logprobs = PromptLogprobs{.num_top = 1};
  return request;
}

struct Seen {
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;
  std::optional<FinishReason> finish;
  bool operator==(const Seen&) const = default;
};
using SeenById = std::map<std::int64_t, Seen>;

void take_step(Engine& engine, SeenById& seen) {
  for (const TokenOutput& output : engine.step()) {
    Seen& one = seen[output.request];
    EXPECT_EQ(output.error, "");
    EXPECT_FALSE(one.finish) << "a token of a request that has ended";
    one.tokens.push_back(output.token);
    if (output.logprob) one.logprobs.push_back(*output.logprob);
    one.finish = output.finish;
  }
}

SeenById all_of(Engine engine, unsigned requests) {
  SeenById seen;
  for (unsigned i = 0; i < requests; ++i) {
    engine.submit(varied_request(i));
    if (i % 3 == 2) take_step(engine, seen);  // some arrive while others run
  }
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 10'000, "the engine makes no progress");
    take_step(engine, seen);
  }
  return seen;
}

TEST(Overlap, GivesTheSameTokensAndEnds) {
  constexpr unsigned kRequests = 40;
  const SeenById expected = all_of(golden_engine(Overlap::off), kRequests);
  ASSERT_EQ(expected.size(), kRequests);
  const EngineOptions variants[] = {
      {.threads = 2},
      {.max_sequences = 3},
      {.max_sequences = 4, .max_tokens_per_step = 5, .page_size = 3},
      {.max_sequences = 12, .max_tokens_per_step = 16, .page_size = 4, .kv_bytes = 20 * kOnePageOf4},
  };
  for (const EngineOptions& options : variants)
    EXPECT_EQ(all_of(golden_engine(Overlap::on, options), kRequests), expected);
}

TEST(Overlap, CancelsInTheMiddleOfASequence) {
  const SeenById expected = all_of(golden_engine(Overlap::off), 12);
  for (int at = 0; at < 8; ++at) {
    Engine engine = golden_engine(Overlap::on, {.max_sequences = 4, .page_size = 4});
    SeenById seen;
    for (unsigned i = 0; i < 12; ++i) engine.submit(varied_request(i));
    for (int step = 0; !engine.idle(); ++step) {
      if (step == at) {
        engine.cancel(1);
        engine.end(2);
        engine.cancel(9);
      }
      take_step(engine, seen);
    }
    for (const auto& [id, one] : expected) {
      if (id == 1 || id == 2 || id == 9) continue;
      EXPECT_EQ(seen[id], one) << "request " << id << ", cancelled at " << at;
    }
  }
}

TEST(Overlap, AConversationGoesOnInPagesThatWereKept) {
  const auto talk = [](Engine engine) {
    std::vector<std::int32_t> all{3, 1, 4, 1, 5};
    std::vector<int> computed;
    for (int turn = 0; turn < 4; ++turn) {
      Request request{.prompt = all, .max_tokens = 9, .after_end = AfterEnd::keep};
      for (std::int32_t id = 0; turn % 2 == 1 && id < 331; id += 3) request.stop_ids.push_back(id);  // soon hit
      engine.submit(request);
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
  const auto expected = talk(golden_engine(Overlap::off, {.page_size = 4}));
  EXPECT_EQ(talk(golden_engine(Overlap::on, {.page_size = 4})), expected);
  EXPECT_LT(expected.second.back(), 6);
}

// Logits that favour the token after the last one, are not numbers after 13, or fail as a whole in step `fails_in`.
class CountingModel : public Model {
 public:
  const ModelShape& shape() const override { return shape_; }
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Execution& execution) override {
    const Tensor logits = arena.take(step.num_logit_rows, 16, DType::float32);
    if (execution.compute.dry_run != nullptr) return logits;
    ++steps_;
    execution.compute.stream.enqueue([step, logits, fails = steps_ == fails_in](ThreadPool&) {
      if (fails) throw Failure("the device is gone");
      for (int i = 0; i < step.num_logit_rows; ++i)
        for (int id = 0; id < 16; ++id) {
          const std::int32_t last = step.tokens[step.logit_rows[i]];
          static_cast<float*>(logits.data)[i * 16 + id] = last == 13 ? NAN : id == (last + 1) % 16 ? 2.0F : 1.0F;
        }
    });
    return logits;
  }
  int fails_in = 0;

 private:
  int steps_ = 0;
  ModelShape shape_{.num_layers = 1, .kv = keys_and_values(1, 2, DType::float32), .vocab_size = 16, .max_context = 64};
};

TEST(Overlap, ARequestWhoseLogitsAreNotNumbersEndsAloneWithTheReason) {
  Engine engine(std::make_unique<CountingModel>(), {.overlap = Overlap::on});
  const std::int64_t sound = engine.submit({.prompt = {1}, .max_tokens = 9});
  const std::int64_t broken = engine.submit({.prompt = {11}, .max_tokens = 9});
  std::vector<std::int32_t> sound_tokens, broken_tokens;
  int errors = 0;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      if (output.request == sound) sound_tokens.push_back(output.token);
      if (output.request != broken) continue;
      if (!output.finish) {
        broken_tokens.push_back(output.token);
        continue;
      }
      EXPECT_EQ(output.finish, FinishReason::error);
      EXPECT_THAT(output.error, HasSubstr("logits are not finite at position 3"));
      ++errors;
    }
  EXPECT_EQ(sound_tokens, (std::vector<std::int32_t>{2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(broken_tokens, (std::vector<std::int32_t>{12, 13}));
  EXPECT_EQ(errors, 1);
}

TEST(Overlap, StepsThatFailAreReportedOnceAndDoneAgain) {
  for (int fails_in = 1; fails_in <= 8; ++fails_in) {
    auto model = std::make_unique<CountingModel>();
    model->fails_in = fails_in;
    Engine engine(std::move(model), {.max_tokens_per_step = 64, .page_size = 4, .overlap = Overlap::on});
    engine.submit({.prompt = {1, 2, 3}, .max_tokens = 6});
    engine.submit({.prompt = {6}, .max_tokens = 4});
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    int failures = 0;
    for (int steps = 0; !engine.idle() && steps < 100; ++steps) {
      try {
        for (const TokenOutput& output : engine.step()) tokens[output.request].push_back(output.token);
      } catch (const Failure&) {
        ++failures;
      }
    }
    EXPECT_EQ(failures, fails_in <= 6 ? 1 : 0) << fails_in;
    EXPECT_EQ(tokens[0], (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9})) << fails_in;
    EXPECT_EQ(tokens[1], (std::vector<std::int32_t>{7, 8, 9, 10})) << fails_in;
  }
}

TEST(TokenHistory, ABiasedTokenIsUnseenUntilItComes) {
  const std::vector<LogitBias> biases{{8, 1.5}, {3, 1}, {8, 0.5}};
  TokenHistory history(std::vector<std::int32_t>{3, 5}, biases);
  std::map<std::int32_t, std::pair<std::int32_t, float>> entries;
  const auto list = [&] {
    for (const HistoryToken& token : history.tokens()) entries[token.id] = {token.count, token.bias};
    return entries;
  };
  EXPECT_EQ(list(), (std::map<std::int32_t, std::pair<std::int32_t, float>>{
                        {8, {HistoryToken::kUnseen, 2.0f}}, {3, {0, 1.0f}}, {5, {0, 0.0f}}}));
  history.add_text(8);
  EXPECT_EQ(list().at(8), (std::pair<std::int32_t, float>{1, 2.0f}));
}

TEST(TokenHistory, ListsEachTokenOnceAndCountsTheText) {
  const std::vector<std::int32_t> prompt{5, 3, 5};
  TokenHistory history(prompt);
  for (const std::int32_t id : {3, 8, 8}) history.add_text(id);
  std::map<std::int32_t, std::int32_t> counts;
  for (const HistoryToken& token : history.tokens()) EXPECT_TRUE(counts.emplace(token.id, token.count).second);
  EXPECT_EQ(counts, (std::map<std::int32_t, std::int32_t>{{5, 0}, {3, 1}, {8, 2}}));
}

}  // namespace
}  // namespace heddle
