// Models whose keys and values are divided over ranks by position (--cp): the logits of transformers and of one rank,
// alone and together with divided weights (--tp), whatever the chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpu_here.h"
#include "models/experts_family.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using ContextRows = std::vector<std::vector<float>>;

constexpr double kContextBound = 1e-4;  // float32 in another order of sums, as on ranks that divide weights

double farthest(const ContextRows& a, const ContextRows& b) {
  require(a.size() == b.size(), "{} rows, {} rows", a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double difference = std::abs(static_cast<double>(a[i][j]) - b[i].at(j));
      if (!(difference <= largest)) largest = difference;  // NaN sticks
    }
  return largest;
}

struct ContextWay {
  int tensor_ranks, context_ranks;
  TpMode mode = TpMode::standard;
  Device device = {};  // of all

  LlamaRunner::Options options() const {
    return {.device = device, .ranks = ranks(), .context_ranks = context_ranks, .tp_mode = mode};
  }
  int ranks() const { return tensor_ranks * context_ranks; }
  std::string text() const {
    return "tp" + std::to_string(tensor_ranks) + "_cp" + std::to_string(context_ranks) +
           (mode == TpMode::standard ? "" : "_" + std::string(name_of(mode))) +
           (device.kind == DeviceKind::cuda ? "_on_gpu" : "");
  }
};

class ContextRanks : public testing::TestWithParam<ContextWay> {
 protected:
  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::cpu) return;
    prepare_shared_gpus(std::vector<Device>(static_cast<std::size_t>(GetParam().ranks()), GetParam().device));
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  template <class Family>
  static ContextRows kept_rows(const Family& family, const nlohmann::json& a_case, LlamaRunner::Options options,
                               const std::vector<std::size_t>& chunks) {
    const TemporaryFolder folder;
    family.write(a_case, folder.path());
    LlamaRunner runner(folder.path(), options);
    const ContextRows all = logits_in_chunks(runner, family.tokens(), chunks);
    ContextRows kept;
    for (const std::size_t row : family.rows()) kept.push_back(all[row]);
    return kept;
  }
};

// Windows, biases, norms of heads, every setting; contexts that end within a page and leave a rank without keys.
TEST_P(ContextRanks, EveryLlamaAgreesWithTransformers) {
  const LlamaFamily family;
  int num_run = 0;
  for (const auto& c : family.cases()) {
    const int heads = c["config"]["num_attention_heads"];
    if (heads % GetParam().tensor_ranks != 0) continue;
    const ContextRows rows = kept_rows(family, c, GetParam().options(), {61, 64, 1, 40});
    EXPECT_LE(farthest(rows, family.golden(c["name"])), kContextBound) << c["name"] << ": " << c["why"];
    ++num_run;
  }
  EXPECT_GT(num_run, 10);
}

// Latent attention has a cache that every rank of divided weights has, too.
class ContextRanksWithExperts : public ContextRanks {};

TEST_P(ContextRanksWithExperts, EveryModelAgreesWithTransformers) {
  const ExpertsFamily family;
  int num_run = 0;
  for (const auto& c : family.cases()) {
    const int heads = c["config"]["num_attention_heads"];
    if (heads % GetParam().tensor_ranks != 0) continue;
    LlamaRunner::Options options = GetParam().options();
    options.dtype = DType::float32;
    const ContextRows rows = kept_rows(family, c, options, {31, 1, 1, 20, 64});
    EXPECT_LE(farthest(rows, family.golden(c["name"])), kContextBound) << c["name"] << ": " << c["why"];
    ++num_run;
  }
  EXPECT_GT(num_run, 4);
}

INSTANTIATE_TEST_SUITE_P(, ContextRanks,
                         testing::Values(ContextWay{1, 2}, ContextWay{1, 3}, ContextWay{2, 2},
                                         ContextWay{2, 2, TpMode::fused}, ContextWay{2, 2, TpMode::sequence},
                                         ContextWay{1, 3, TpMode::standard, kFirstGpu},
                                         ContextWay{2, 2, TpMode::standard, kFirstGpu}),
                         [](const auto& test) { return test.param.text(); });
INSTANTIATE_TEST_SUITE_P(, ContextRanksWithExperts,
                         testing::Values(ContextWay{1, 2}, ContextWay{1, 3}, ContextWay{2, 2},
                                         ContextWay{2, 2, TpMode::fused}, ContextWay{1, 3, TpMode::standard, kFirstGpu},
                                         ContextWay{2, 2, TpMode::standard, kFirstGpu}),
                         [](const auto& test) { return test.param.text(); });

std::vector<std::int32_t> mixed_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>((17 + 31 * i * i) % 101);
  return tokens;
}

// Even numbers of heads, on a grid of two by two, in every way that ranks add.
TEST(ContextRanksOrder, AGridOfTwoByTwoAgreesWithOneRankInEveryMode) {
  for (const char* name : {"gqa", "mqa-sharded"}) {
    LlamaRunner one(golden_folder(name), {.dtype = DType::float32});
    const ContextRows expected = logits_in_chunks(one, mixed_tokens(100), {57, 1, 1, 41});
    for (const TpMode mode : {TpMode::standard, TpMode::symmetric, TpMode::fused, TpMode::sequence}) {
      LlamaRunner grid(golden_folder(name), {.dtype = DType::float32, .ranks = 4, .context_ranks = 2, .tp_mode = mode});
      EXPECT_LE(farthest(logits_in_chunks(grid, mixed_tokens(100), {57, 1, 1, 41}), expected), kContextBound)
          << name << ", " << name_of(mode);
    }
  }
}

// A row's bits depend on its sequence and the number of ranks: not on chunks, threads or neighbours.
TEST(ContextRanksOrder, NoChunkingNoThreadsAndNoNeighbourChangeABit) {
  const LlamaFamily family;
  const TemporaryFolder folder;
  family.write(family.find("qwen3-v5"), folder.path());
  const std::vector<std::int32_t> tokens = family.tokens();
  const LlamaRunner::Options options{.ranks = 3, .context_ranks = 3};
  LlamaRunner::Options with_threads = options;
  with_threads.threads = 6;
  LlamaRunner whole(folder.path(), options), chunks(folder.path(), with_threads), beside(folder.path(), options);
  const ContextRows expected = logits_in_chunks(whole, tokens, {64});
  EXPECT_EQ(logits_in_chunks(chunks, tokens, {50, 7, 1, 33}), expected);
  auto sequence = beside.sequence(), neighbour = beside.sequence();
  beside.step({{&neighbour, {3, 4, 5}}});
  const ContextRows prompt = beside.step({{&neighbour, {6}}, {&sequence, {tokens.begin(), tokens.begin() + 30}}});
  EXPECT_EQ(prompt[30], expected[29]);
  for (std::size_t i = 30; i < 40; ++i)
    EXPECT_EQ(beside.step({{&sequence, {tokens[i]}}, {&neighbour, {5, 6, 7}}})[0], expected[i]) << i;
}

// Steps in two parts, as --tp-mode weave has them.
TEST(ContextRanksOrder, StepsInTwoPartsHaveTheBitsOfWholeOnes) {
  const LlamaRunner::Options options{.dtype = DType::float32, .ranks = 4, .context_ranks = 2};
  LlamaRunner::Options in_parts = options;
  in_parts.tp_mode = TpMode::weave;
  in_parts.border = [](int num_tokens) { return num_tokens / 3; };
  LlamaRunner whole(golden_folder("gqa"), options), woven(golden_folder("gqa"), in_parts);
  EXPECT_EQ(logits_in_chunks(woven, mixed_tokens(100), {61, 1, 38}),
            logits_in_chunks(whole, mixed_tokens(100), {61, 1, 38}));
}

// Multiplied in bfloat16 as on one rank: sums of a rank's keys in float32, so what differs is their order.
TEST(ContextRanksOrder, SixteenBitsStayNearOneRank) {
  for (const char* name : {"gqa-bfloat16", "tied-float16"}) {
    const auto folder = golden_folder(name);
    LlamaRunner one(folder, {}), three(folder, {.ranks = 3, .context_ranks = 3});
    const std::vector<std::int32_t> tokens = {5, 100, 7,  3,  77, 0,  42, 9,  58, 31,
                                              2, 99,  17, 18, 19, 20, 21, 22, 23, 24};
    const ContextRows expected = logits_in_chunks(one, tokens, {13, 1, 6});
    double largest = 0;
    for (const float logit : expected.back()) largest = std::max(largest, std::abs(static_cast<double>(logit)));
    EXPECT_LE(farthest(logits_in_chunks(three, tokens, {13, 1, 6}), expected), 0.05 * largest) << name;
  }
}

TEST(ContextRanksOrder, UnequalHeadsAreRefusedWhenThePlanIsBuilt) {
  try {
    LlamaRunner(golden_folder("gqa"), {.ranks = 8, .context_ranks = 2});  // 6 heads on 4 ranks
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--cp 2: with --tp 4 the ranks have different numbers of attention heads"));
  }
}

}  // namespace
}  // namespace heddle
