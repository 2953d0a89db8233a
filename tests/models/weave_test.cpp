// Steps in two parts on ranks of the CPU, cut at awkward places: transformers' logits, and the bits of whole steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/experts_family.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"

namespace heddle {
namespace {

using WovenLogits = std::vector<std::vector<float>>;

// As on ranks whose steps are whole (llama_ranks_test.cpp).
constexpr double kWovenBound = 1e-4;

double distance_to(const WovenLogits& golden, const WovenLogits& found) {
  require(found.size() == golden.size(), "{} rows, {} in the golden", found.size(), golden.size());
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = 0; j < found[i].size(); ++j) {
      const double error = std::abs(static_cast<double>(found[i][j]) - golden[i].at(j));
      if (!(error <= largest)) largest = error;  // NaN sticks
    }
  return largest;
}

struct Border {
  std::string name;
  std::function<int(int)> of;
};

// The first token alone, the last alone, halves, and within every sequence of a batch.
std::vector<Border> awkward_borders() {
  return {{"after the first token", [](int) { return 1; }},
          {"before the last token", [](int tokens) { return tokens - 1; }},
          {"in the middle", [](int tokens) { return tokens / 2; }},
          {"at 7", [](int) { return 7; }}};
}

WovenLogits rows_kept(const WovenLogits& all, const std::vector<std::size_t>& rows) {
  WovenLogits kept;
  for (const std::size_t row : rows) kept.push_back(all.at(row));
  return kept;
}

class WovenSteps : public testing::TestWithParam<int> {};

// Biases, norms of heads, windows that begin in the other part, tied embeddings: every third case, each at a border.
TEST_P(WovenSteps, GiveTransformersLogitsAndTheBitsOfWholeSteps) {
  const LlamaFamily family;
  const std::vector<Border> borders = awkward_borders();
  std::size_t index = 0, num_run = 0;
  for (const auto& c : family.cases()) {
    if (index++ % 3 != 0 || c["config"]["num_attention_heads"].get<int>() < GetParam()) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    const TemporaryFolder folder;
    family.write(c, folder.path());
    LlamaRunner whole(folder.path(), {.ranks = GetParam()});
    const WovenLogits expected = logits_in_chunks(whole, family.tokens(), {61, 64, 1, 40});
    EXPECT_LE(distance_to(family.golden(c["name"]), rows_kept(expected, family.rows())), kWovenBound);
    const Border& border = borders[num_run++ % borders.size()];
    LlamaRunner woven(folder.path(), {.ranks = GetParam(), .border = border.of});
    EXPECT_TRUE(logits_in_chunks(woven, family.tokens(), {61, 64, 1, 40}) == expected) << border.name;
  }
  EXPECT_TRUE(num_run > 0 || GetParam() > 3);
}

// Heads, features and a vocabulary that no number of ranks divides.
TEST_P(WovenSteps, OfUnevenSlicesGiveTransformersLogits) {
  const auto folder = golden_folder("gqa");
  const nlohmann::json golden = parse_json(read_file(folder / "golden.json", 1 << 20), "golden.json");
  const std::vector<std::int32_t> tokens = golden["tokens"];
  LlamaRunner whole(folder, {.dtype = DType::float32, .ranks = GetParam()});
  const WovenLogits expected = logits_in_chunks(whole, tokens, {64});
  for (const Border& border : awkward_borders()) {
    LlamaRunner woven(folder, {.dtype = DType::float32, .ranks = GetParam(), .border = border.of});
    EXPECT_TRUE(logits_in_chunks(woven, tokens, {64}) == expected) << border.name;
  }
}

TEST_P(WovenSteps, OfExpertsAndLatentsGiveTransformersLogits) {
  const ExpertsFamily family;
  for (const auto& c : family.cases()) {
    SCOPED_TRACE(c["name"].get<std::string>());
    if (c["config"]["num_attention_heads"].get<int>() < GetParam()) continue;
    const TemporaryFolder folder;
    family.write(c, folder.path());
    const LlamaRunner::Options options{.dtype = DType::float32, .ranks = GetParam()};
    LlamaRunner::Options in_parts = options;
    in_parts.border = awkward_borders()[2].of;
    LlamaRunner whole(folder.path(), options), woven(folder.path(), in_parts);
    const WovenLogits expected = logits_in_chunks(whole, family.tokens(), {30});
    const WovenLogits found = logits_in_chunks(woven, family.tokens(), {30});
    EXPECT_TRUE(found == expected);
    EXPECT_LE(distance_to(family.golden(c["name"]), rows_kept(found, family.rows())), 3 * kWovenBound);
  }
}

INSTANTIATE_TEST_SUITE_P(, WovenSteps, testing::Values(2, 3, 4),
                         [](const auto& test) { return "on_" + std::to_string(test.param) + "_ranks"; });

// Prompts, the rest of one, and sequences that decode, in one step; every border of it.
TEST(WovenBatches, HaveTheBitsOfWholeStepsAtEveryBorder) {
  const auto folder = golden_folder("gqa");
  const auto course = [&](LlamaRunner& runner) {
    std::vector<LlamaRunner::Sequence> sequences;
    for (int i = 0; i < 4; ++i) sequences.push_back(runner.sequence());
    WovenLogits all;
    const auto add = [&](WovenLogits rows) {
      for (auto& row : rows) all.push_back(std::move(row));
    };
    add(runner.step({{&sequences[0], {5, 6, 7, 8, 9}}, {&sequences[1], {20, 21}}}));
    add(runner.step({{&sequences[0], {30}}, {&sequences[2], {1, 2, 3, 4, 5, 6}}, {&sequences[1], {22, 23, 24}}}));
    add(runner.step({{&sequences[0], {31}}, {&sequences[1], {25}}, {&sequences[2], {7}}, {&sequences[3], {9, 9, 9}}}));
    add(runner.step({{&sequences[3], {10}}, {&sequences[2], {8}}, {&sequences[1], {26}}, {&sequences[0], {32}}}));
    return all;
  };
  LlamaRunner whole(folder, {.dtype = DType::float32, .ranks = 2});
  const WovenLogits expected = course(whole);
  for (const int border : {1, 2, 4, 5, 6, 8, 9}) {
    LlamaRunner woven(folder, {.dtype = DType::float32, .ranks = 2, .border = [=](int) { return border; }});
    EXPECT_TRUE(course(woven) == expected) << "border " << border;
    EXPECT_TRUE(course(woven) == expected) << "border " << border << ", again";
  }
}

// On one rank nothing crosses: parts run one after the other.
TEST(WovenBatches, OnOneRankHaveTheBitsOfWholeSteps) {
  const LlamaFamily family;
  const auto& c = family.find("qwen3-v5");
  const TemporaryFolder folder;
  family.write(c, folder.path());
  LlamaRunner whole(folder.path(), {}), woven(folder.path(), {.threads = 3, .border = [](int) { return 17; }});
  EXPECT_TRUE(logits_in_chunks(woven, family.tokens(), {64}) == logits_in_chunks(whole, family.tokens(), {50}));
}

}  // namespace
}  // namespace heddle
