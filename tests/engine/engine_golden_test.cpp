// Requests that run together against transformers (tools/goldens/make_llama_heads.py), whose heads are as wide as real
// ones: on a GPU the fast kernels, graphs and overlapping steps.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "gpu_here.h"
#include "models/llama_heads.h"
#include "models/registry.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using Tokens = LlamaHeads::Tokens;

struct EngineOn {
  const char* name;
  DType dtype;
  Device device;
};

class EngineGolden : public testing::TestWithParam<EngineOn> {
 protected:
  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::cpu) return;
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  // Prompts come in chunks, beside sequences that decode.
  Engine make_engine(Device device, DType dtype) const {
    const TemporaryFolder folder;
    heads_.write(folder.path());
    return {load_model(Checkpoint(folder.path()), {.device = device, .dtype = dtype}),
            {.threads = 2, .max_tokens_per_step = 96, .kv_bytes = 64 << 20, .max_logit_rows = 96}};
  }

  // By request, all outputs in order.
  static std::map<std::int64_t, std::vector<TokenOutput>> run(Engine& engine) {
    std::map<std::int64_t, std::vector<TokenOutput>> outputs;
    for (int steps = 0; !engine.idle(); ++steps) {
      require(steps < 10'000, "the engine makes no progress");
      for (const TokenOutput& output : engine.step()) outputs[output.request].push_back(output);
    }
    return outputs;
  }

  const LlamaHeads heads_{GetParam().name};
  const std::vector<Tokens> sequences_ = heads_.sequences();
};

TEST_P(EngineGolden, TextsScoredTogetherHaveTheirLogprobs) {
  Engine engine = make_engine(GetParam().device, GetParam().dtype);
  std::vector<std::int64_t> ids;
  for (const Tokens& tokens : sequences_) {
    engine.submit({.prompt = {tokens.begin(), tokens.begin() + 20}, .max_tokens = 30});  // decodes beside them
    ids.push_back(engine.submit({.prompt = tokens, .max_tokens = 0, .prompt_logprobs = PromptLogprobs{}}));
  }
  auto outputs = run(engine);
  Distance distance;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const std::vector<float> expected = heads_.logprobs(i);
    ASSERT_EQ(outputs[ids[i]].size(), expected.size());
    for (std::size_t j = 0; j < expected.size(); ++j) distance.add(outputs[ids[i]][j].logprob.value(), expected[j]);
  }
  const LlamaHeads::Allowed allowed = heads_.allowed_of_logprobs(GetParam().dtype);
  EXPECT_LE(distance.largest(), allowed.largest);
  EXPECT_LE(distance.root_mean_square(), allowed.root_mean_square);
}

// Greedy answers of requests that decode together. In float32 they are transformers' own. A 2-byte dtype may prefer
// another token where two logits are near: what it chooses must be among the largest for the float32 model, which is
// held to transformers by the tests above.
TEST_P(EngineGolden, AnswersFollowTheLargestLogits) {
  constexpr int kCopies = 3;
  Engine engine = make_engine(GetParam().device, GetParam().dtype), float32 = make_engine({}, DType::float32);
  const std::vector<std::size_t> lengths = heads_.prompt_lengths();
  const std::vector<Tokens> golden = heads_.answers();
  std::vector<Tokens> prompts;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    prompts.emplace_back(sequences_[i].begin(), sequences_[i].begin() + static_cast<std::ptrdiff_t>(lengths[i]));
  std::map<std::int64_t, std::size_t> prompt_of;
  for (int copy = 0; copy < kCopies; ++copy)
    for (std::size_t i = 0; i < prompts.size(); ++i)
      prompt_of[engine.submit({.prompt = prompts[i], .max_tokens = std::ssize(golden[i])})] = i;

  std::map<std::int64_t, std::size_t> prompt_of_scored;
  for (const auto& [id, outputs] : run(engine)) {
    const std::size_t i = prompt_of.at(id);
    Tokens answer;
    for (const TokenOutput& output : outputs) answer.push_back(output.token);
    ASSERT_EQ(answer.size(), golden[i].size());
    if (GetParam().dtype == DType::float32) {
      EXPECT_EQ(answer, golden[i]) << "prompt " << i;
    }
    Tokens text = prompts[i];
    text.insert(text.end(), answer.begin(), answer.end());
    const PromptLogprobs wanted{.first = std::ssize(prompts[i]), .num_top = 1};
    prompt_of_scored[float32.submit({.prompt = text, .max_tokens = 0, .prompt_logprobs = wanted})] = i;
  }
  const double allowed = 2 * heads_.allowed_of_logits(GetParam().dtype).largest;
  for (const auto& [id, outputs] : run(float32)) {
    const std::size_t i = prompt_of_scored.at(id);
    ASSERT_EQ(outputs.size(), golden[i].size());
    for (const TokenOutput& output : outputs)
      EXPECT_GE(*output.logprob, output.top[0].logprob - allowed)
          << "prompt " << i << ", token " << *output.prompt_index;
  }
}

std::vector<EngineOn> heads_on_all_devices() {
  std::vector<EngineOn> cases;
  for (const Device device : {Device{}, kFirstGpu})
    for (const char* name : {"llama-64", "qwen2-128", "qwen3-128", "mistral-128"})
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
        cases.push_back({name, dtype, device});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, EngineGolden, testing::ValuesIn(heads_on_all_devices()), [](const auto& test) {
  std::string name = fmt::format("{}_{}", test.param.name, name_of(test.param.dtype));
  std::ranges::replace(name, '-', '_');
  return name + (test.param.device.kind == DeviceKind::cuda ? "_on_gpu" : "");
});

}  // namespace
}  // namespace heddle
