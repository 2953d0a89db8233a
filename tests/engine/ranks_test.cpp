// An engine on several ranks that are threads: the same tokens as on one, and errors that name the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/step_channel.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "parallel/tensor_split.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Outputs = std::map<std::int64_t, std::vector<TokenOutput>>;

constexpr std::int64_t kVocabularyOfGqa = 331;  // of the model's vocabulary

std::filesystem::path model_with_6_heads() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
}

// In mode fused, with the operator's regime.
RankModels fused_ranks(int ranks, AllReduceNormRegime regime) {
  RankModels parts = load_ranks(Checkpoint(model_with_6_heads()), {.tp_mode = TpMode::fused}, ranks);
  for (int rank = 0; rank < ranks; ++rank)
    parts[static_cast<std::size_t>(rank)].world->all_reduce_norm(rank)->force(regime);
  return parts;
}

RankModels golden_ranks(int ranks, std::chrono::nanoseconds deadline = kRankDeadline) {
  return load_ranks(Checkpoint(model_with_6_heads()), {}, ranks, {.deadline = deadline});
}

std::vector<std::int32_t> random_tokens_of(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(1 + random() % 40);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kVocabularyOfGqa);
  return tokens;
}

// Requests with each way to choose a token.
std::vector<Request> requests_of_every_kind() {
  const SamplingParams ways[] = {
      {},
      {.temperature = 0.9, .top_k = 50, .seed = 3},
      {.temperature = 1.2, .top_p = 0.8, .seed = 5},
      {.temperature = 1.0, .min_p = 0.05, .seed = 7},
      {.temperature = 0.7, .repetition_penalty = 1.3, .presence_penalty = 0.2, .frequency_penalty = 0.3, .seed = 11},
      {.repetition_penalty = 1.5},
  };
  std::vector<Request> requests;
  for (unsigned i = 0; i < std::size(ways); ++i) {
    requests.push_back({.prompt = random_tokens_of(i), .sampling = ways[i], .max_tokens = 12});
    requests.push_back({.prompt = random_tokens_of(100 + i),
                        .sampling = ways[i],
                        .max_tokens = 9,
                        .num_top_logprobs = 3,
                        .prompt_logprobs = PromptLogprobs{.first = 1, .num_top = 2},
                        .logit_bias = {{.id = 17, .bias = 4}, {.id = 18, .bias = -100}}});
  }
  return requests;
}

Outputs outputs_of(Engine& engine) {
  Outputs outputs;
  for (int steps = 0; !engine.idle(); ++steps) {
    require(steps < 10'000, "the engine makes no progress");
    for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output);
  }
  return outputs;
}

Outputs outputs_of(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) engine.submit(request);
  return outputs_of(engine);
}

std::vector<std::int32_t> ids_of(const std::vector<TokenOutput>& outputs) {
  std::vector<std::int32_t> tokens;
  for (const TokenOutput& output : outputs) tokens.push_back(output.token);
  return tokens;
}

TEST(EngineRanks, ChooseTheTokensOfOneRankInEveryWay) {
  const std::vector<Request> requests = requests_of_every_kind();
  Engine alone(golden_ranks(1), {});
  const Outputs expected = outputs_of(alone, requests);
  for (const int ranks : {2, 3, 4, 6}) {
    Engine engine(golden_ranks(ranks), {.threads = 2});
    Outputs outputs = outputs_of(engine, requests);
    for (const auto& [id, golden] : expected) {
      ASSERT_EQ(ids_of(outputs[id]), ids_of(golden)) << ranks << " ranks, request " << id;
      for (std::size_t i = 0; i < golden.size(); ++i) {
        const TokenOutput& output = outputs[id][i];
        ASSERT_EQ(output.logprob.has_value(), golden[i].logprob.has_value());
        if (output.logprob) {
          EXPECT_NEAR(*output.logprob, *golden[i].logprob, 1e-4);
        }
        ASSERT_EQ(output.top.size(), golden[i].top.size());
      }
    }
  }
}

// In chunks, with preemption, beside requests that come later and one that is cancelled: the bits of a request alone.
TEST(EngineRanks, ARequestsTokensDependOnNothingBesideIt) {
  const EngineOptions variants[] = {
      {.threads = 4, .max_sequences = 3, .max_tokens_per_step = 9, .page_size = 3},
      {.max_sequences = 12, .max_tokens_per_step = 16, .page_size = 4, .kv_bytes = 12 * 2 * 3 * 4 * 2 * 24 * 4},
  };
  std::vector<Request> requests = requests_of_every_kind();
  requests.resize(5);
  for (Request& request : requests) request.max_tokens = 6;
  std::vector<std::vector<std::int32_t>> expected;
  for (const Request& request : requests) {
    Engine engine(golden_ranks(2), {});
    expected.push_back(ids_of(outputs_of(engine, {request}).begin()->second));
  }
  for (const EngineOptions& options : variants) {
    Engine engine(golden_ranks(2), options);
    Outputs outputs;
    std::vector<std::int64_t> ids;
    const auto step = [&] {
      for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output);
    };
    const std::int64_t cancelled = engine.submit({.prompt = random_tokens_of(77), .max_tokens = 60});
    for (const Request& request : requests) {
      ids.push_back(engine.submit(request));
      if (ids.size() % 4 == 3) step();
    }
    engine.cancel(cancelled);
    while (!engine.idle()) step();
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(ids_of(outputs[ids[i]]), expected[i]) << "request " << i;
  }
}

// Chunks, preemption and a cancelled request, with the residual on the owners of tokens: rows for logits are gathered.
TEST(EngineRanks, FusedModeChoosesTheTokensOfTheDefaultInEveryRegime) {
  std::vector<Request> requests = requests_of_every_kind();
  requests.resize(6);
  Engine standard(golden_ranks(3), {});
  const Outputs expected = outputs_of(standard, requests);
  const EngineOptions tight{
      .max_sequences = 12, .max_tokens_per_step = 16, .page_size = 4, .kv_bytes = 20 * 2 * 3 * 4 * 2 * 24 * 4};
  for (const auto regime :
       {AllReduceNormRegime::one_shot, AllReduceNormRegime::two_phase, AllReduceNormRegime::pipelined}) {
    Engine engine(fused_ranks(3, regime), tight);
    for (const Request& request : requests) engine.submit(request);
    const std::int64_t cancelled = engine.submit({.prompt = random_tokens_of(77), .max_tokens = 60});
    Outputs outputs;
    for (int steps = 0; !engine.idle(); ++steps) {
      if (steps == 3) engine.cancel(cancelled);
      for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output);
    }
    for (const auto& [id, golden] : expected)
      EXPECT_EQ(ids_of(outputs[id]), ids_of(golden)) << name_of(regime) << ", request " << id;
  }
}

TEST(EngineRanks, AKeptConversationGoesOnFromItsPages) {
  Request first{.prompt = random_tokens_of(1), .max_tokens = 5, .after_end = AfterEnd::keep};
  first.prompt.resize(40, 7);
  Engine engine(golden_ranks(2), {.page_size = 4});
  const auto answer = ids_of(outputs_of(engine, {first}).begin()->second);
  Request next{.prompt = first.prompt, .max_tokens = 6};
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  next.prompt.push_back(9);
  const std::int64_t id = engine.submit(next);
  engine.step();
  EXPECT_LT(engine.last_step().num_prompt_tokens, 10);  // the rest is shared
  std::vector<std::int32_t> continued;
  Engine fresh(golden_ranks(2), {});
  const auto expected = ids_of(outputs_of(fresh, {next}).begin()->second);
  engine.cancel(id);
  EXPECT_EQ(ids_of(outputs_of(engine, {next}).begin()->second), expected);
}

TEST(EngineRanks, CountTheBytesOfAllRanks) {
  Engine one(golden_ranks(1), {}), two(golden_ranks(2), {});
  for (Engine* engine : {&one, &two}) {
    engine->submit({.prompt = {1, 2, 3}, .max_tokens = 1});
    engine->step();
  }
  EXPECT_EQ(one.last_step().bytes_read, two.last_step().bytes_read);  // two KV heads: none is on both
}

// Does something of its own before a rank's step; on the CPU a step's arrays can be read there.
class WatchedModel : public Model {
 public:
  using Watch = std::function<void(const StepTensors&)>;
  WatchedModel(std::unique_ptr<Model> model, Watch watch) : model_(std::move(model)), watch_(std::move(watch)) {}

  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr) watch_(step);
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
  Watch watch_;
};

void watch_rank(RankModels& ranks, int rank, WatchedModel::Watch watch) {
  std::unique_ptr<Model>& model = ranks[static_cast<std::size_t>(rank)].model;
  model = std::make_unique<WatchedModel>(std::move(model), std::move(watch));
}

TEST(EngineRanks, OtherRanksComputeTheTokensThatRank0Chose) {
  RankModels ranks = golden_ranks(3);
  std::vector<std::vector<std::int32_t>> seen(ranks.size());
  for (int rank = 0; rank < 3; ++rank)
    watch_rank(ranks, rank, [&mine = seen[static_cast<std::size_t>(rank)]](const StepTensors& step) {
      mine.insert(mine.end(), step.tokens, step.tokens + step.num_tokens);
    });
  std::vector<std::int32_t> chosen;
  {
    Engine engine(std::move(ranks), {});
    // Whoever chose greedily, or without the biases, which rank 0 alone knows, would choose others.
    chosen = ids_of(outputs_of(engine, {{.prompt = {5, 6, 7},
                                         .sampling = {.temperature = 1.5, .seed = 99},
                                         .max_tokens = 20,
                                         .logit_bias = {{.id = 17, .bias = 8}, {.id = 18, .bias = 8}}}})
                        .begin()
                        ->second);
  }
  std::vector<std::int32_t> expected = {5, 6, 7};
  expected.insert(expected.end(), chosen.begin(), chosen.end() - 1);  // the last is not computed
  for (const std::vector<std::int32_t>& mine : seen) EXPECT_EQ(mine, expected);
}

// Fused by a table for some sizes of steps, by another algorithm for some: the same choice reaches every rank, and no
// token changes.
TEST(EngineRanks, OtherRanksComputeAsRank0HasChosen) {
  std::vector<Request> requests = requests_of_every_kind();
  requests.resize(4);
  Engine standard(golden_ranks(3), {});
  const Outputs expected = outputs_of(standard, requests);
  const ChoiceTables tables{
      .forms = {{2, SumForm::fused}, {4, SumForm::separate}, {16, SumForm::fused}, {.form = SumForm::separate}},
      .sums = {{1000, {Algorithm::low_latency}}, {4000, {Algorithm::two_phase}}, {.choice = {Algorithm::direct}}}};
  RankModels ranks = load_ranks(Checkpoint(model_with_6_heads()), {.tp_mode = TpMode::fused}, 3);
  const std::size_t bytes_per_token = ranks[0].model->shape().delta_bytes_per_token;
  EXPECT_GT(bytes_per_token, 0u);
  std::vector<std::vector<StepChoices>> seen(ranks.size());
  std::vector<StepChoices> own;
  for (int rank = 0; rank < 3; ++rank)
    watch_rank(ranks, rank, [&, rank](const StepTensors& step) {
      seen[static_cast<std::size_t>(rank)].push_back(step.choices);
      if (rank == 0) own.push_back(choices_for(tables, step.num_tokens, bytes_per_token));
    });
  {
    Engine engine(std::move(ranks), {.tables = tables});
    Outputs outputs = outputs_of(engine, requests);
    for (const auto& [id, golden] : expected) EXPECT_EQ(ids_of(outputs[id]), ids_of(golden)) << "request " << id;
  }
  const auto has = [&](SumForm form) { return std::ranges::find(own, form, &StepChoices::sums) != own.end(); };
  EXPECT_TRUE(has(SumForm::fused) && has(SumForm::separate));
  for (const std::vector<StepChoices>& mine : seen) EXPECT_TRUE(mine == own);
}

struct RankFault {
  int rank;
  const char* phase;
  int step;  // 1: the prompt, later ones decode; behind kStepsOfFirst: after the ranks have been idle
};
constexpr int kStepsOfFirst = 30;  // of a request before they are

class EngineRankFaults : public testing::TestWithParam<RankFault> {};

// The rank's thread throws; every rank ends at once, not at the deadline.
TEST_P(EngineRankFaults, AreNamedWithTheirCauseAndEndAllRanks) {
  const auto start = Clock::now();
  RankModels ranks = golden_ranks(3);
  watch_rank(ranks, GetParam().rank, [count = 0](const StepTensors&) mutable {
    if (++count == GetParam().step) throw Failure("the disk has melted");
  });
  {
    Engine engine(std::move(ranks), {});
    engine.submit({.prompt = {1, 2, 3}, .max_tokens = kStepsOfFirst});
    if (GetParam().step > kStepsOfFirst) {
      EXPECT_EQ(outputs_of(engine).size(), 1u);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // nobody types; the ranks sleep
      engine.submit({.prompt = {4, 5, 6}, .max_tokens = 2});
    }
    const std::string who = "rank " + std::to_string(GetParam().rank) + ": the disk has melted";
    for (int again = 0; again < 2; ++again) {
      try {
        outputs_of(engine);
        ADD_FAILURE() << "no error";
      } catch (const Failure& error) {
        EXPECT_THAT(error.what(), HasSubstr(who));
      }
    }
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

INSTANTIATE_TEST_SUITE_P(
    , EngineRankFaults, testing::ValuesIn([] {
      std::vector<RankFault> faults;
      for (const int rank : {0, 1, 2})
        for (const auto& [phase, step] : {std::pair{"prefill", 1}, {"decode", 5}, {"after_idling", kStepsOfFirst + 1}})
          faults.push_back({rank, phase, step});
      return faults;
    }()),
    [](const auto& test) { return "on_rank_" + std::to_string(test.param.rank) + "_in_" + test.param.phase; });

// Fails in a step, and ends as a GPU's memory does: only when no other rank waits for this one any more.
class ModelThatOthersHold : public Model {
 public:
  ModelThatOthersHold(std::unique_ptr<Model> model, const std::atomic<bool>& told, std::atomic<bool>& ended_untold)
      : model_(std::move(model)), told_(told), ended_untold_(ended_untold) {}
  ~ModelThatOthersHold() override {
    const auto limit = Clock::now() + std::chrono::seconds(10);
    while (!told_ && Clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended_untold_ = !told_;
  }

  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run == nullptr) throw Failure("the disk has melted");
    return model_->run(step, kv, arena, execution);
  }

 private:
  std::unique_ptr<Model> model_;
  const std::atomic<bool>& told_;
  std::atomic<bool>& ended_untold_;
};

TEST(EngineRanks, AFaultIsToldBeforeItsRankFreesWhatOthersWaitIn) {
  RankModels ranks = golden_ranks(2);
  std::atomic<bool> told = false, ended_untold = false;
  ranks[1].model = std::make_unique<ModelThatOthersHold>(std::move(ranks[1].model), told, ended_untold);
  {
    Engine engine(std::move(ranks), {});
    engine.submit({.prompt = {1, 2, 3}, .max_tokens = 30});
    EXPECT_THROW(outputs_of(engine), Failure);
    told = true;
  }
  EXPECT_FALSE(ended_untold);
}

// Where an executor measures its steps and takes their memory, on the rank's own thread.
class ModelWithoutMemory : public Model {
 public:
  explicit ModelWithoutMemory(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors&, const KvPages&, Arena&, const Execution&) override {
    throw Failure("cannot allocate 99 GiB");
  }

 private:
  std::unique_ptr<Model> model_;
};

TEST(EngineRanks, ARankWithoutMemoryIsNamed) {
  const auto start = Clock::now();
  RankModels ranks = golden_ranks(3);
  ranks[1].model = std::make_unique<ModelWithoutMemory>(std::move(ranks[1].model));
  try {
    Engine engine(std::move(ranks), {});
    ADD_FAILURE() << "no error";
  } catch (const Failure& error) {
    EXPECT_STREQ(error.what(), "rank 1: cannot allocate 99 GiB");
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST(EngineRanks, AHungRankIsNamedAtTheDeadline) {
  RankModels ranks = golden_ranks(3, std::chrono::milliseconds(500));
  watch_rank(ranks, 2, [](const StepTensors&) { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  Engine engine(std::move(ranks), {});
  engine.submit({.prompt = {1, 2, 3}, .max_tokens = 3});
  try {
    outputs_of(engine);
    ADD_FAILURE() << "no error";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("for rank 2"), HasSubstr("deadline of 0.5 s")));
  }
}

// Reads from a rank's thread fail.
class BrokenSource : public ModelSource {
 public:
  // The rows of `broken` cannot be read.
  BrokenSource(const ModelSource& source, Slice broken) : source_(source), broken_(broken) {}
  JsonField config() const override { return source_.config(); }
  std::optional<JsonField> generation_config() const override { return source_.generation_config(); }
  std::size_t total_bytes() const override { return source_.total_bytes(); }
  std::vector<std::string_view> names() const override { return source_.names(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override {
    if (name == "lm_head.weight" && first_row >= broken_.first && first_row < broken_.first + broken_.count)
      throw Failure("lm_head.weight: cannot be read");
    return source_.rows(name, first_row, num_rows);
  }
  std::string where() const override { return source_.where(); }

 private:
  const ModelSource& source_;
  Slice broken_;
};

class EngineRankLoads : public testing::TestWithParam<int> {};

TEST_P(EngineRankLoads, ARankThatCannotReadItsPartIsNamed) {
  const Checkpoint checkpoint(model_with_6_heads());
  const std::int64_t vocab_size = checkpoint.find("lm_head.weight")->shape.front();
  try {
    load_ranks(BrokenSource(checkpoint, even_slice(vocab_size, GetParam(), 3)), {}, 3);
    ADD_FAILURE() << "no error";
  } catch (const Failure& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank " + std::to_string(GetParam()) + ": "),
                                    HasSubstr("lm_head.weight: cannot be read")));
  }
}

INSTANTIATE_TEST_SUITE_P(, EngineRankLoads, testing::Values(0, 1, 2),
                         [](const auto& test) { return "on_rank_" + std::to_string(test.param); });

double seconds_of_cpu() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(EngineRanks, SleepWhileIdle) {
  Engine engine(golden_ranks(4), {});
  outputs_of(engine, {{.prompt = {1, 2, 3}, .max_tokens = 3}});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // pools look for work for a moment
  const double before = seconds_of_cpu();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(seconds_of_cpu() - before, 0.02);
}

TEST(StepChannel, HandsEachStepToEachRankOnce) {
  StepChannel channel(2);
  std::vector<std::int32_t> taken;
  std::thread other([&] {
    channel.join();
    StepPlan plan;
    while (channel.receive(1, plan)) taken.push_back(plan.tokens[0]);
  });
  channel.await_joined();
  StepPlan plan;
  for (std::int32_t token = 0; token < 100; ++token) {
    plan.tokens = {token};
    channel.send(plan);
    plan.tokens = {-1};  // the channel has a copy
  }
  channel.send(plan);  // returns when the one before was taken
  channel.close();
  other.join();
  ASSERT_GE(taken.size(), 100u);
  for (std::int32_t token = 0; token < 100; ++token) EXPECT_EQ(taken[static_cast<std::size_t>(token)], token);
}

TEST(StepChannel, AFailureEndsEveryWaitAndTheFirstIsTold) {
  StepChannel channel(3);
  std::thread other([&] {
    StepPlan plan;
    channel.join();
    EXPECT_FALSE(channel.receive(1, plan));
  });
  channel.fail(2, std::make_exception_ptr(InputError("no such file")));
  channel.fail(1, std::make_exception_ptr(Failure("a rank has gone")));
  other.join();
  for (const auto& call :
       {std::function<void()>([&] { channel.await_joined(); }), std::function<void()>([&] { channel.send({}); }),
        std::function<void()>([&] { channel.check(); })}) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "rank 2: no such file");
    }
  }
}

}  // namespace
}  // namespace heddle
