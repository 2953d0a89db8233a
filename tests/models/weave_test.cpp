// Steps in two parts on ranks of the CPU, cut at awkward places: transformers' logits, and the bits of whole steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
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

// By whose strategy parts are summed: the default's, or the fused operator of the mode `weave`, which leaves each row of the
// residual on one rank from two_phase on.
struct WovenCase {
  int ranks;
  TpMode mode = TpMode::standard;
  std::optional<AllReduceNormRegime> regime = {};  // nothing: by size

  LlamaRunner::Options options(std::optional<DType> dtype, const std::function<int(int)>& border) const {
    return {.dtype = dtype, .ranks = ranks, .tp_mode = mode, .regime = regime, .border = border};
  }
};

class WovenSteps : public testing::TestWithParam<WovenCase> {};

// Biases, norms of heads, windows that begin in the other part, tied embeddings: every third case, each at a border.
TEST_P(WovenSteps, GiveTransformersLogitsAndTheBitsOfWholeSteps) {
  const LlamaFamily family;
  const std::vector<Border> borders = awkward_borders();
  std::size_t index = 0, num_run = 0;
  for (const auto& c : family.cases()) {
    if (index++ % 3 != 0 || c["config"]["num_attention_heads"].get<int>() < GetParam().ranks) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    const TemporaryFolder folder;
    family.write(c, folder.path());
    LlamaRunner whole(folder.path(), {.ranks = GetParam().ranks});
    const WovenLogits expected = logits_in_chunks(whole, family.tokens(), {61, 64, 1, 40});
    EXPECT_LE(distance_to(family.golden(c["name"]), rows_kept(expected, family.rows())), kWovenBound);
    const Border& border = borders[num_run++ % borders.size()];
    LlamaRunner woven(folder.path(), GetParam().options({}, border.of));
    EXPECT_TRUE(logits_in_chunks(woven, family.tokens(), {61, 64, 1, 40}) == expected) << border.name;
  }
  EXPECT_TRUE(num_run > 0 || GetParam().ranks > 3);
}

// Heads, features and a vocabulary that no number of ranks divides.
TEST_P(WovenSteps, OfUnevenSlicesGiveTransformersLogits) {
  const auto folder = golden_folder("gqa");
  const nlohmann::json golden = parse_json(read_file(folder / "golden.json", 1 << 20), "golden.json");
  const std::vector<std::int32_t> tokens = golden["tokens"];
  LlamaRunner whole(folder, {.dtype = DType::float32, .ranks = GetParam().ranks});
  const WovenLogits expected = logits_in_chunks(whole, tokens, {64});
  for (const Border& border : awkward_borders()) {
    LlamaRunner woven(folder, GetParam().options(DType::float32, border.of));
    EXPECT_TRUE(logits_in_chunks(woven, tokens, {64}) == expected) << border.name;
  }
}

TEST_P(WovenSteps, OfExpertsAndLatentsGiveTransformersLogits) {
  const ExpertsFamily family;
  for (const auto& c : family.cases()) {
    SCOPED_TRACE(c["name"].get<std::string>());
    if (c["config"]["num_attention_heads"].get<int>() < GetParam().ranks) continue;
    const TemporaryFolder folder;
    family.write(c, folder.path());
    LlamaRunner whole(folder.path(), {.dtype = DType::float32, .ranks = GetParam().ranks});
    LlamaRunner woven(folder.path(), GetParam().options(DType::float32, awkward_borders()[2].of));
    const WovenLogits expected = logits_in_chunks(whole, family.tokens(), {30});
    const WovenLogits found = logits_in_chunks(woven, family.tokens(), {30});
    EXPECT_TRUE(found == expected);
    EXPECT_LE(distance_to(family.golden(c["name"]), rows_kept(found, family.rows())), 3 * kWovenBound);
  }
}

constexpr WovenCase kWovenCases[] = {
    {.ranks = 2},
    {.ranks = 3},
    {.ranks = 4},
    {.ranks = 2, .mode = TpMode::weave},
    {.ranks = 2, .mode = TpMode::weave, .regime = AllReduceNormRegime::pipelined},
    {.ranks = 3, .mode = TpMode::weave, .regime = AllReduceNormRegime::two_phase},
};

std::string name_of_case(const testing::TestParamInfo<WovenCase>& test) {
  const WovenCase& c = test.param;
  return fmt::format("on_{}_ranks{}{}{}", c.ranks, c.mode == TpMode::weave ? "_weave" : "", c.regime ? "_" : "",
                     c.regime ? name_of(*c.regime) : "");
}

INSTANTIATE_TEST_SUITE_P(, WovenSteps, testing::ValuesIn(kWovenCases), name_of_case);

class WovenBatches : public testing::TestWithParam<WovenCase> {};

// Prompts, the rest of one, and sequences that decode, in one step; every border of it.
TEST_P(WovenBatches, HaveTheBitsOfWholeStepsAtEveryBorder) {
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
  LlamaRunner whole(folder, {.dtype = DType::float32, .ranks = GetParam().ranks});
  const WovenLogits expected = course(whole);
  for (const int border : {1, 2, 4, 5, 6, 8, 9}) {
    LlamaRunner woven(folder, GetParam().options(DType::float32, [=](int) { return border; }));
    EXPECT_TRUE(course(woven) == expected) << "border " << border;
    EXPECT_TRUE(course(woven) == expected) << "border " << border << ", again";
  }
}

INSTANTIATE_TEST_SUITE_P(, WovenBatches, testing::ValuesIn(kWovenCases), name_of_case);

// On one rank nothing crosses: parts run one after the other.
TEST(WovenOnOneRank, HasTheBitsOfWholeSteps) {
  const LlamaFamily family;
  const auto& c = family.find("qwen3-v5");
  const TemporaryFolder folder;
  family.write(c, folder.path());
  LlamaRunner whole(folder.path(), {}), woven(folder.path(), {.threads = 3, .border = [](int) { return 17; }});
  EXPECT_TRUE(logits_in_chunks(woven, family.tokens(), {64}) == logits_in_chunks(whole, family.tokens(), {50}));
}

}  // namespace
}  // namespace heddle
