#include "engine/warm_up.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

Engine engine_of(const EngineOptions& options) {
  return Engine(load_model(Checkpoint(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa"), {}), options);
}

std::vector<std::int32_t> answer(Engine& engine) {
  std::vector<std::int32_t> prompt(20), tokens;
  std::iota(prompt.begin(), prompt.end(), 0);
  engine.submit({.prompt = prompt, .sampling = {.temperature = 1, .seed = 7}, .max_tokens = 12});
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) tokens.push_back(output.token);
  return tokens;
}

TEST(WarmUp, LeavesAnIdleEngineWhoseAnswersAreTheSame) {
  const EngineOptions options{.max_sequences = 5, .max_tokens_per_step = 24, .prefix_cache = true};
  Engine fresh = engine_of(options), warm = engine_of(options);
  warm_up(warm, {.sequences = 9, .step_tokens = 64});
  EXPECT_TRUE(warm.idle());
  const EngineStatus status = warm.status();
  EXPECT_EQ(status.num_free_pages + status.num_cached_pages, status.num_pages);
  EXPECT_EQ(answer(warm), answer(fresh));
}

TEST(WarmUp, FitsAContextThatIsShorterThanItsPrompts) {
  Engine engine = engine_of({.max_sequences = 2, .max_context = 20});
  warm_up(engine, {.sequences = 3, .step_tokens = 512});
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace heddle
