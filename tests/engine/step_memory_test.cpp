// The largest steps of each mode are measured, whatever a model takes more of.
#include "engine/step_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

namespace heddle {
namespace {

// Takes memory in steps of one mode alone, more of it for each token, sequence and row.
class ModelOfOneMode : public Model {
 public:
  using Mode = std::function<bool(const StepTensors& step)>;
  explicit ModelOfOneMode(Mode mode) : mode_(std::move(mode)) {}

  const ModelShape& shape() const override { return shape_; }
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Execution&) override {
    if (mode_(step))
      arena.take_bytes(Arena::kAlignment * (100 * step.num_tokens + 10 * step.num_sequences + step.num_logit_rows));
    return {};
  }

 private:
  Mode mode_;
  ModelShape shape_{.num_layers = 1, .kv = keys_and_values(1, 2, DType::float32), .vocab_size = 16, .max_context = 64};
};

TEST(StepMemory, IsThatOfTheLargestStepOfEveryMode) {
  const std::pair<const char*, ModelOfOneMode::Mode> modes[] = {
      {"no logits", [](const StepTensors& step) { return step.num_logit_rows == 0; }},
      {"logits of some rows",
       [](const StepTensors& step) { return step.num_logit_rows > 0 && step.num_logit_rows < step.num_tokens; }},
      {"logits of all rows", [](const StepTensors& step) { return step.num_logit_rows == step.num_tokens; }},
      {"one sequence", [](const StepTensors& step) { return step.num_sequences == 1; }},
      {"several sequences", [](const StepTensors& step) { return step.num_sequences > 1; }},
      {"a token each", [](const StepTensors& step) { return step.max_query_len == 1; }},
      {"one sequence with logits of all its tokens",
       [](const StepTensors& step) { return step.num_sequences == 1 && step.num_logit_rows == step.num_tokens; }},
  };
  for (const auto& [name, mode] : modes)
    for (const int max_sequences : {1, 6, 9})
      for (const int max_samples : {4, 6, 8, 9, 20}) {
        SCOPED_TRACE(fmt::format("{}, up to {} sequences and {} rows", name, max_sequences, max_samples));
        const ExecutorLimits limits{
            .step = {.max_tokens = 9, .max_sequences = max_sequences, .max_samples = max_samples}, .page_size = 4};
        ModelOfOneMode model(mode);
        std::size_t largest = 0;
        for (int tokens = 1; tokens <= 9; ++tokens)
          for (int sequences = 1; sequences <= std::min(max_sequences, tokens); ++sequences)
            for (int rows = 0; rows <= std::min(max_samples, tokens); ++rows)
              largest = std::max(largest, run_dry(model, limits,
                                                  {.num_tokens = tokens,
                                                   .num_sequences = sequences,
                                                   .num_logit_rows = rows,
                                                   .max_query_len = tokens - sequences + 1})
                                              .arena_bytes);
        EXPECT_EQ(step_bytes(model, limits), largest);
      }
}

}  // namespace
}  // namespace heddle
