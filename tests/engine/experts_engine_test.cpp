// Requests to models with experts and with latent attention: together, preempted, kept and cached they get the answers that
// they get alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "engine/rank_models.h"
#include "models/experts_family.h"
#include "models/registry.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;

class ExpertsEngine : public testing::TestWithParam<const char*> {
 protected:
  ExpertsEngine() { family_.write(family_.find(GetParam()), folder_.path()); }

  std::unique_ptr<Model> model() const { return load_model(Checkpoint(folder_.path()), {.dtype = DType::float32}); }

  // Of all requests; `prompt_tokens` counts those computed.
  static std::map<std::int64_t, Ids> run(Engine& engine, int& prompt_tokens) {
    std::map<std::int64_t, Ids> answers;
    prompt_tokens = 0;
    for (int steps = 0; !engine.idle(); ++steps) {
      require(steps < 10'000, "the engine makes no progress");
      for (const TokenOutput& output : engine.step()) answers[output.request].push_back(output.token);
      prompt_tokens += engine.last_step().num_prompt_tokens;
    }
    return answers;
  }

  Ids prompt(std::size_t i) const {
    const Ids tokens = family_.tokens();
    return {tokens.begin() + static_cast<std::ptrdiff_t>(3 * i),
            tokens.begin() + static_cast<std::ptrdiff_t>(3 * i + 25)};
  }

  Ids alone(std::size_t i) const {
    Engine engine(model(), {.page_size = 4});
    const std::int64_t id = engine.submit({.prompt = prompt(i), .max_tokens = kAnswer});
    int prompt_tokens = 0;
    return run(engine, prompt_tokens).at(id);
  }

  static constexpr int kRequests = 4, kAnswer = 20;
  const ExpertsFamily family_;
  const TemporaryFolder folder_;
};

TEST_P(ExpertsEngine, PreemptedRequestsGetTheAnswersThatTheyGetAlone) {
  const std::unique_ptr<Model> outline = model();
  // Pages for two of the four texts, each of 45 tokens.
  const auto page_bytes = static_cast<std::int64_t>(outline->shape().kv_pages(4, 1).size_bytes());
  Engine engine(
      model(),
      {.threads = 2, .max_sequences = 4, .max_tokens_per_step = 16, .page_size = 4, .kv_bytes = 25 * page_bytes});
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < kRequests; ++i)
    ids.push_back(engine.submit({.prompt = prompt(i), .max_tokens = kAnswer}));
  int prompt_tokens = 0;
  const auto answers = run(engine, prompt_tokens);
  EXPECT_GT(prompt_tokens, kRequests * 25);  // some were computed again
  for (std::size_t i = 0; i < kRequests; ++i) EXPECT_EQ(answers.at(ids[i]), alone(i)) << i;
}

TEST_P(ExpertsEngine, AKeptConversationGoesOnWithTheSameAnswer) {
  Engine engine(model(), {.page_size = 4});
  int computed = 0;
  const std::int64_t first = engine.submit({.prompt = prompt(0), .max_tokens = kAnswer, .after_end = AfterEnd::keep});
  Ids text = prompt(0);
  const Ids answer = run(engine, computed).at(first);
  text.insert(text.end(), answer.begin(), answer.end());
  text.insert(text.end(), {5, 6, 7});
  const std::int64_t second = engine.submit({.prompt = text, .max_tokens = kAnswer});
  const Ids continued = run(engine, computed).at(second);
  EXPECT_LT(computed, 10);  // of 48

  Engine fresh(model(), {.page_size = 4});
  const std::int64_t whole = fresh.submit({.prompt = text, .max_tokens = kAnswer});
  EXPECT_EQ(run(fresh, computed).at(whole), continued);
}

TEST_P(ExpertsEngine, APromptInThePrefixCacheGetsTheSameAnswer) {
  Engine engine(model(), {.page_size = 4, .prefix_cache = true});
  int computed = 0;
  const std::int64_t first = engine.submit({.prompt = prompt(0), .max_tokens = kAnswer});
  const Ids answer = run(engine, computed).at(first);
  EXPECT_EQ(computed, 25);
  const std::int64_t second = engine.submit({.prompt = prompt(0), .max_tokens = kAnswer});
  EXPECT_EQ(run(engine, computed).at(second), answer);
  EXPECT_LE(computed, 5);  // the last page's tokens
}

// Ranks add what their shares of heads and of experts leave, while threads of each compute; ThreadSanitizer sees it here.
TEST_P(ExpertsEngine, TwoRanksGiveTheAnswersOfOne) {
  const std::vector<Ids> prompts{prompt(0), {7}, prompt(2), {1, 2, 3}};
  const auto answers_of = [&](Engine engine) {
    std::vector<std::int64_t> ids;
    for (const Ids& text : prompts) ids.push_back(engine.submit({.prompt = text, .max_tokens = 6}));
    int prompt_tokens = 0;
    auto answers = run(engine, prompt_tokens);
    std::vector<Ids> result;
    for (const std::int64_t id : ids) result.push_back(answers.at(id));
    return result;
  };
  const std::vector<Ids> expected = answers_of(Engine(model(), {.page_size = 4}));
  for (const TpMode mode : {TpMode::standard, TpMode::fused})
    EXPECT_EQ(answers_of(Engine(load_ranks(Checkpoint(folder_.path()), {.dtype = DType::float32, .tp_mode = mode}, 2),
                                {.threads = 4, .max_sequences = 4, .max_tokens_per_step = 16, .page_size = 4})),
              expected)
        << name_of(mode);
}

INSTANTIATE_TEST_SUITE_P(, ExpertsEngine, testing::Values("mixtral-window", "v2-lite-yarn", "v3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle
