// The largest steps of each mode are measured, whatever a model takes more of.
#include "engine/step_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

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

// A decode step is replayed from a graph of its size or of the next larger one, as many sequences as the limits allow.
TEST(StepMemory, DecodeStepsOfUpTo256SequencesAreFilledUpToFewSizes) {
  const ExecutorLimits limits{
      .step = {.max_tokens = 512, .max_sequences = 256, .max_samples = 256, .max_pages_per_sequence = 8},
      .page_size = 16};
  std::set<int> sizes;
  for (int sequences = 1; sequences <= 256; ++sequences) {
    const int size = decode_batch(sequences, limits);
    EXPECT_GE(size, sequences);
    EXPECT_LT(size, sequences + 32);
    sizes.insert(size);
  }
  EXPECT_EQ(*sizes.rbegin(), 256);
  EXPECT_EQ(sizes.size(), 16u + 6 + 6);  // 1 to 16, then 24 to 64 and 96 to 256
}

TEST(StepMemory, IsThatOfTheLargestStepInPartsAndByEveryChoice) {
  const std::pair<const char*, ModelOfOneMode::Mode> modes[] = {
      {"in two parts", [](const StepTensors& step) { return step.num_parts() == 2; }},
      {"a first part of one token", [](const StepTensors& step) { return step.parts[0].shape.num_tokens == 1; }},
      {"a second part of one token", [](const StepTensors& step) { return step.parts[1].shape.num_tokens == 1; }},
      {"whole, with sums by themselves",
       [](const StepTensors& step) { return step.num_parts() == 1 && step.choices.sums == SumForm::separate; }},
      {"in two parts, with sums by themselves",
       [](const StepTensors& step) { return step.num_parts() == 2 && step.choices.sums == SumForm::separate; }},
      {"whole, with fused sums",
       [](const StepTensors& step) { return step.num_parts() == 1 && step.choices.sums == SumForm::fused; }},
      {"a token each, with fused attention", [](const StepTensors& step) { return step.choices.decode.fused(); }},
      {"in two parts of one sequence",
       [](const StepTensors& step) { return step.num_parts() == 2 && step.parts[1].shape.first_sequence == 0; }},
  };
  const StepChoices choices_of_all_kinds[] = {
      {.sums = SumForm::of_mode},
      {.sums = SumForm::fused},
      {.sums = SumForm::separate},
      {.sums = SumForm::separate, .decode = {.form = DecodeChoice::Form::clusters}}};
  constexpr int kTokens = 9, kSequences = 4;
  const ExecutorLimits limits{.step = {.max_tokens = kTokens,
                                       .max_sequences = kSequences,
                                       .max_samples = kTokens,
                                       .max_parts = kMostParts,
                                       .fused_decode = true},
                              .page_size = 4};
  for (const auto& [name, mode] : modes) {
    SCOPED_TRACE(name);
    ModelOfOneMode model(mode);
    std::size_t largest = 0;
    for (int tokens = 1; tokens <= kTokens; ++tokens)
      for (int sequences = 1; sequences <= std::min(kSequences, tokens); ++sequences)
        for (int rows = 0; rows <= tokens; ++rows)
          for (int border = 0; border < tokens; ++border)
            for (const StepChoices& choices : choices_of_all_kinds) {
              StepPlan plan{.prefix_tokens = border, .choices = choices};
              plan.tokens.resize(static_cast<std::size_t>(tokens));
              plan.samples.resize(static_cast<std::size_t>(rows));
              for (int i = 0; i < sequences; ++i)
                plan.sequences.push_back({.first_token = i == 0 ? 0 : tokens - sequences + i,
                                          .num_tokens = i == 0 ? tokens - sequences + 1 : 1});
              if (choices.decode.fused() && (!is_decode(plan) || border > 0)) continue;
              largest = std::max(largest, run_dry(model, limits, shape_of(plan)).arena_bytes);
            }
    EXPECT_EQ(step_bytes(model, limits), largest);
  }
}

}  // namespace
}  // namespace heddle
