// Models with experts and with latent attention, compared with transformers: each case on one rank and on two, whole and
// in chunks.
#include "models/experts_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "gpu_here.h"
#include "layers/latent_attention.h"
#include "models/deepseek_config.h"
#include "models/llama_runner.h"
#include "models/mixtral_config.h"
#include "parallel/decode_choice.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows = ExpertsFamily::Rows;

struct ExpertsWay {
  std::vector<std::size_t> chunks;  // the last is repeated to the end
  LlamaRunner::Options options;
};

class ExpertsFamilyTest : public testing::Test {
 protected:
  static LlamaRunner::Options with_float32(LlamaRunner::Options options) {
    options.dtype = DType::float32;
    return options;
  }

  // The logits that the goldens hold, computed in some way.
  Rows run(const nlohmann::json& a_case, const ExpertsWay& way) const {
    const TemporaryFolder folder;
    family_.write(a_case, folder.path());
    LlamaRunner runner(folder.path(), with_float32(way.options));
    Rows all = logits_in_chunks(runner, family_.tokens(), way.chunks), kept;
    for (const std::size_t row : family_.rows()) kept.push_back(std::move(all[row]));
    return kept;
  }

  double largest_error(const nlohmann::json& a_case, const Rows& rows) const {
    const Rows golden = family_.golden(a_case["name"]);
    require(rows.size() == golden.size(), "{} rows, {} in the golden", rows.size(), golden.size());
    double largest = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      require(rows[i].size() == golden[i].size(), "{} logits, {} in the golden", rows[i].size(), golden[i].size());
      for (std::size_t j = 0; j < rows[i].size(); ++j) {
        const double error = std::abs(static_cast<double>(rows[i][j]) - golden[i][j]);
        if (!(error <= largest)) largest = error;  // NaN sticks
      }
    }
    return largest;
  }

  static double largest_difference(const Rows& a, const Rows& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < a[i].size(); ++j) {
        const double difference = std::abs(static_cast<double>(a[i][j]) - b[i][j]);
        if (!(difference <= largest)) largest = difference;  // NaN sticks
      }
    return largest;
  }

  // What checking and loading the folder say.
  std::string error_of(const nlohmann::json& a_case, const ExpertsFamily::Change& change = {}) const {
    const TemporaryFolder folder;
    family_.write(a_case, folder.path(), change);
    std::string checking, loading;
    try {
      check_model(Checkpoint(folder.path()));
    } catch (const InputError& error) {
      checking = error.what();
    }
    try {
      load_model(Checkpoint(folder.path()), {});
    } catch (const InputError& error) {
      loading = error.what();
    }
    EXPECT_EQ(checking, loading);
    return loading;
  }

  // The error of a case whose config has other fields.
  std::string error_with(const char* name, const nlohmann::json& fields) const {
    nlohmann::json changed = family_.find(name);
    changed["config"].update(fields);
    return error_of(changed);
  }

  const ExpertsFamily family_;
};

// Float32 rounding in another order stays well below this.
constexpr double kExpertsBound = 1e-4;

TEST_F(ExpertsFamilyTest, EveryCaseAgreesInChunks) {
  for (const auto& c : family_.cases())
    EXPECT_LE(largest_error(c, run(c, {{31, 1, 1, 20, 64}, {.threads = 2}})), kExpertsBound)
        << c["name"] << ": " << c["why"];
}

class ExpertsOnRanks : public ExpertsFamilyTest, public testing::WithParamInterface<int> {};

// On 3 ranks 4 heads, and the features of experts, have unequal shares.
TEST_P(ExpertsOnRanks, EveryCaseAgreesWithTransformers) {
  int num_run = 0;
  for (const auto& c : family_.cases()) {
    if (c["config"]["num_attention_heads"].get<int>() < GetParam()) continue;
    for (const TpMode mode : {TpMode::standard, TpMode::fused})
      EXPECT_LE(largest_error(c, run(c, {{40, 1, 64}, {.ranks = GetParam(), .tp_mode = mode}})), kExpertsBound)
          << c["name"] << ": " << c["why"] << ", " << name_of(mode);
    ++num_run;
  }
  EXPECT_GT(num_run, 12);
}

INSTANTIATE_TEST_SUITE_P(, ExpertsOnRanks, testing::Values(2, 3, 4),
                         [](const auto& test) { return "on_" + std::to_string(test.param) + "_ranks"; });

TEST_F(ExpertsFamilyTest, EveryCaseAgreesOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  for (const auto& c : family_.cases())
    EXPECT_LE(largest_error(c, run(c, {{31, 1, 1, 20, 64}, {.page_size = 8, .device = kFirstGpu}})), kExpertsBound)
        << c["name"] << ": " << c["why"];
}

TEST_F(ExpertsFamilyTest, NoChunkingChangesABit) {
  const Rows expected = run(family_.find("mixtral-window"), {{64}, {}});
  EXPECT_EQ(run(family_.find("mixtral-window"), {{1}, {.threads = 2}}), expected);
  EXPECT_EQ(run(family_.find("mixtral-window"), {{50, 7, 33}, {.threads = 3, .page_size = 7}}), expected);
}

// Chunks of up to 32 tokens are absorbed, longer ones expanded (layers/latent_rows.h): each way has its own bits.
TEST_F(ExpertsFamilyTest, NoChunkingOfOneWayOfLatentAttentionChangesABit) {
  for (const char* name : {"v2", "v2-lite", "v3"}) {
    const auto& c = family_.find(name);
    const Rows absorbed = run(c, {{32}, {}}), expanded = run(c, {{90}, {.threads = 2, .max_tokens = 90}});
    EXPECT_EQ(run(c, {{1}, {.threads = 2}}), absorbed) << name;
    EXPECT_EQ(run(c, {{30, 7, 25, 32}, {.threads = 3, .page_size = 7}}), absorbed) << name;
    EXPECT_EQ(run(c, {{40, 50}, {.threads = 3, .page_size = 7}}), expanded) << name;
    EXPECT_NE(absorbed, expanded) << name << ": the test is of no use where one way computes both";
  }
}

// With a router of zeros all tokens choose the first expert, and the others have none: a dense model of that expert.
TEST_F(ExpertsFamilyTest, AllTokensOfOneExpertGetWhatADenseModelOfItGives) {
  nlohmann::json mixture = family_.find("mixtral-top-1"), dense = mixture;
  for (auto& recipe : mixture["tensors"])
    if (recipe["name"].get<std::string>().ends_with(".gate.weight")) recipe["deviation"] = 0;
  dense["config"].update({{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}, {"rope_theta", 1e6}});
  dense["tensors"] = nlohmann::json::array();
  const std::pair<std::string, std::string> names[] = {
      {"experts.0.w1", "gate_proj"}, {"experts.0.w3", "up_proj"}, {"experts.0.w2", "down_proj"}};
  for (auto recipe : mixture["tensors"]) {
    const auto name = recipe["name"].get<std::string>();
    if (const std::size_t at = name.find("block_sparse_moe."); at != std::string::npos) {
      const auto* const found =
          std::ranges::find_if(names, [&](const auto& of) { return name.find(of.first) != std::string::npos; });
      if (found == std::end(names)) continue;
      recipe["made_as"] = name;
      recipe["name"] = name.substr(0, at) + "mlp." + found->second + ".weight";
    }
    dense["tensors"].push_back(recipe);
  }
  for (const int ranks : {1, 2}) {
    const ExpertsWay way{{31, 1, 64}, {.threads = 2, .ranks = ranks}};
    EXPECT_LE(largest_difference(run(mixture, way), run(dense, way)), 1e-5) << ranks;
  }
  EXPECT_GT(largest_difference(run(family_.find("mixtral-top-1"), {{64}, {}}), run(dense, {{64}, {}})), 0.1);
}

TEST(ExpectedExperts, IsTheMeanOfManyChoices) {
  std::mt19937 generator(1);
  for (const auto& [count, top_k, tokens] : {std::tuple(64, 6, 16), std::tuple(8, 2, 3), std::tuple(16, 1, 40)}) {
    constexpr int kTrials = 4000;
    double sum = 0;
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    for (int trial = 0; trial < kTrials; ++trial) {
      std::set<int> chosen;
      for (int token = 0; token < tokens; ++token)
        std::ranges::sample(all, std::inserter(chosen, chosen.end()), top_k, generator);
      sum += static_cast<double>(chosen.size());
    }
    EXPECT_NEAR(expected_experts(count, top_k, tokens), sum / kTrials, 0.1) << count << " " << top_k << " " << tokens;
  }
  EXPECT_DOUBLE_EQ(expected_experts(64, 6, 1), 6);
  EXPECT_EQ(expected_experts(0, 0, 5), 0);
}

TEST_F(ExpertsFamilyTest, AStepOfMoreTokensReadsMoreExperts) {
  const auto shape_of = [&](const char* name) {
    const TemporaryFolder folder;
    family_.write(family_.find(name), folder.path());
    return load_model(Checkpoint(folder.path()), {.dtype = DType::float32})->shape();
  };
  const ModelShape shape = shape_of("v2-lite");  // six of sixteen in two layers
  const double expert = 2 * 3 * 24 * 48 * sizeof(float), one = static_cast<double>(shape.weight_bytes_per_step);
  EXPECT_EQ(shape.weight_bytes_of_step(0), shape.weight_bytes_per_step);
  EXPECT_EQ(shape.weight_bytes_of_step(1), shape.weight_bytes_per_step);
  EXPECT_NEAR(static_cast<double>(shape.weight_bytes_of_step(2)), one + (16 * (1 - 0.625 * 0.625) - 6) * expert, 1);
  EXPECT_NEAR(static_cast<double>(shape.weight_bytes_of_step(1000)), one + 10 * expert, 1);
  const ModelShape dense = shape_of("v2-dense");
  EXPECT_EQ(dense.weight_bytes_of_step(1000), dense.weight_bytes_per_step);
}

TEST_F(ExpertsFamilyTest, NeighboursInABatchChangeNoBit) {
  for (const char* name : {"mixtral", "v2-lite"}) {
    const TemporaryFolder folder;
    family_.write(family_.find(name), folder.path());
    LlamaRunner alone(folder.path(), with_float32({.threads = 2})),
        together(folder.path(), with_float32({.threads = 2}));
    const std::vector<std::int32_t> tokens = family_.tokens();
    const Rows expected = logits_in_chunks(alone, tokens, {30, 1});
    auto sequence = together.sequence(), neighbour = together.sequence();
    // A prompt beside a decode step, then decode steps beside a prompt's chunks.
    together.step({{&neighbour, {3}}});
    const Rows prompt = together.step({{&neighbour, {4}}, {&sequence, {tokens.begin(), tokens.begin() + 30}}});
    EXPECT_EQ(prompt[1], expected[0]) << name;
    EXPECT_EQ(prompt[30], expected[29]) << name;
    for (std::size_t i = 30; i < 36; ++i)
      EXPECT_EQ(together.step({{&sequence, {tokens[i]}}, {&neighbour, {5, 6, 7}}})[0], expected[i]) << name << i;
  }
}

// A step may have rows of both ways, in any order of sequences, and expands several sequences one after the other.
TEST_F(ExpertsFamilyTest, RowsBesideExpandedOnesKeepTheirBits) {
  for (const char* name : {"v2-lite", "v3"})
    for (const int page_size : {5, 16}) {
      const TemporaryFolder folder;
      family_.write(family_.find(name), folder.path());
      const std::vector<std::int32_t> tokens = family_.tokens();
      const auto part = [&](std::size_t begin, std::size_t end) {
        return std::vector<std::int32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tokens.begin() + static_cast<std::ptrdiff_t>(end));
      };
      LlamaRunner alone(folder.path(), with_float32({.threads = 2, .page_size = page_size})),
          together(folder.path(), with_float32({.threads = 2, .page_size = page_size, .max_tokens = 128}));
      const Rows expected = logits_in_chunks(alone, tokens, {40, 1, 1, 3, 45});
      auto first = together.sequence(), second = together.sequence(), third = together.sequence();
      const auto agrees = [&](const Rows& rows, std::size_t row, std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
          EXPECT_EQ(rows[row + i - begin], expected[i]) << name << ", row " << row << ", token " << i;
      };
      agrees(together.step({{&first, part(0, 40)}}), 0, 0, 40);
      Rows rows = together.step({{&first, part(40, 41)}, {&second, part(0, 40)}});
      agrees(rows, 0, 40, 41);
      agrees(rows, 1, 0, 40);
      rows = together.step({{&second, part(40, 41)}, {&third, part(0, 40)}, {&first, part(41, 42)}});
      agrees(rows, 0, 40, 41);
      agrees(rows, 1, 0, 40);
      agrees(rows, 41, 41, 42);
      rows = together.step({{&first, part(42, 45)}, {&second, part(41, 42)}, {&third, part(40, 41)}});
      agrees(rows, 0, 42, 45);
      rows = together.step({{&first, part(45, 90)}, {&third, part(41, 42)}, {&second, part(42, 45)}});
      agrees(rows, 0, 45, 90);
      agrees(rows, 45, 41, 42);
      agrees(rows, 46, 42, 45);
      rows = together.step({{&third, part(42, 45)}});
      rows = together.step({{&third, part(45, 90)}, {&second, part(45, 90)}});
      agrees(rows, 0, 45, 90);
      agrees(rows, 45, 45, 90);
    }
}

// A context of more than kPieceKeys is expanded in pieces, and the state is carried.
TEST_F(ExpertsFamilyTest, PiecesOfALongContextGiveWhatAbsorbedRowsDo) {
  constexpr std::size_t kBeginning = kPieceKeys - 20, kLength = kPieceKeys + 60;
  const TemporaryFolder folder;
  family_.write(family_.find("v2-lite-yarn"), folder.path());
  const auto last_rows = [&](const std::vector<std::size_t>& chunks) {
    LlamaRunner runner(folder.path(), with_float32({.threads = 2,
                                                    .page_size = 32,
                                                    .num_pages = static_cast<int>(kLength) / 32 + 1,
                                                    .max_tokens = static_cast<int>(kLength)}));
    std::vector<std::int32_t> tokens;
    while (tokens.size() < kLength) tokens.push_back(family_.tokens()[tokens.size() * 7 % family_.tokens().size()]);
    Rows rows = logits_in_chunks(runner, tokens, chunks);
    return Rows(rows.end() - 40, rows.end());
  };
  const Rows expanded = last_rows({kBeginning, 80}), whole = last_rows({kLength}),
             absorbed = last_rows({kBeginning, 32});
  EXPECT_EQ(expanded, whole) << "pieces depend on positions, not on chunks";
  EXPECT_LE(largest_difference(expanded, absorbed), 2 * kExpertsBound);
  EXPECT_GT(largest_difference(expanded, absorbed), 0);
}

// Weights and cache of 16 bits: what is rounded is small beside what leaving out a part would do.
TEST_F(ExpertsFamilyTest, SixteenBitsStayNearFloat32) {
  for (const char* name : {"v2-dense", "mixtral-v5"})
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      const TemporaryFolder folder;
      const auto& c = family_.find(name);
      family_.write(c, folder.path());
      LlamaRunner runner(folder.path(), {.threads = 2, .dtype = dtype});
      const Rows all = logits_in_chunks(runner, family_.tokens(), {40, 1, 64});
      const Rows golden = family_.golden(name);
      double sum = 0, count = 0;
      for (std::size_t i = 0; i < golden.size(); ++i)
        for (std::size_t j = 0; j < golden[i].size(); ++j, ++count)
          sum += std::abs(static_cast<double>(all[family_.rows()[i]][j]) - golden[i][j]);
      EXPECT_LE(sum / count, 0.2) << name << " " << name_of(dtype);
    }
}

// Heads as DeepSeek-V2 has them, in 16 bits: what a GPU expands. Chunks of more than 170 tokens are.
class ExpandedOnGpu : public ExpertsFamilyTest {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    family_.write(family_.find("v2-real-heads"), folder_.path());
    while (tokens_.size() < 420) tokens_.push_back(family_.tokens()[tokens_.size() * 7 % 89]);
    const std::vector<std::int32_t> golden = family_.tokens();
    std::ranges::copy(golden, tokens_.begin());
  }

  LlamaRunner runner(DType dtype, int ranks = 1, DecodeChoice decode = {}) const {
    prepare_shared_gpus(std::vector<Device>(static_cast<std::size_t>(ranks), kFirstGpu));
    return {folder_.path(),
            {.page_size = 16,
             .num_pages = 128,
             .max_tokens = 512,
             .dtype = dtype,
             .device = kFirstGpu,
             .ranks = ranks,
             .decode = decode}};
  }
  std::vector<std::int32_t> part(std::size_t begin, std::size_t end) const {
    return {tokens_.begin() + static_cast<std::ptrdiff_t>(begin), tokens_.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  static double mean_difference(const Rows& a, const Rows& b) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < a[i].size(); ++j, ++count) sum += std::abs(static_cast<double>(a[i][j]) - b[i][j]);
    return sum / count;
  }
  // Of logits with a deviation near 3: float16 keeps eight times more than bfloat16.
  static double bound(DType dtype) { return dtype == DType::bfloat16 ? 0.2 : 0.025; }

  TemporaryFolder folder_;
  std::vector<std::int32_t> tokens_;  // the golden's, then others
};

TEST_F(ExpandedOnGpu, LongChunksAgreeWithTransformersAndWithAbsorbedOnes) {
  const Rows golden = family_.golden("v2-real-heads");
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " on " << ranks << " ranks");
      const auto run = [&](const std::vector<std::size_t>& chunks) {
        LlamaRunner model = runner(dtype, ranks);
        return logits_in_chunks(model, tokens_, chunks);
      };
      const Rows expanded = run({420}), chunked = run({200, 220}), absorbed = run({140});
      Rows of_golden;
      for (const std::size_t row : family_.rows()) of_golden.push_back(expanded[row]);
      const double from_golden = mean_difference(of_golden, golden);
      EXPECT_LE(from_golden, bound(dtype));
      EXPECT_LE(mean_difference(expanded, absorbed), bound(dtype));
      EXPECT_LE(mean_difference(expanded, chunked), bound(dtype));
      EXPECT_NE(expanded, absorbed) << "the test is of no use where one way computes both";
      EXPECT_EQ(run({420}), expanded) << "the same steps again";
      RecordProperty("from_golden", std::to_string(from_golden));
    }
}

// Each token behind a prompt by the fused block of latent attention, in each of its clusters, against the CPU in float32,
// which agrees with transformers. The kernel takes hidden sizes of whole pieces of 64 elements.
TEST_F(ExpandedOnGpu, FusedDecodeStepsAgreeWithFloat32AndRepeatBitForBit) {
  constexpr std::size_t kPrompt = 20;
  const std::vector<std::int32_t> tokens = part(0, 60);
  auto wider = family_.find("v2-real-heads");
  const int narrow = wider["config"]["hidden_size"];
  wider["config"]["hidden_size"] = 64;
  for (auto& tensor : wider["tensors"])
    for (auto& extent : tensor["shape"])
      if (extent == narrow) extent = 64;
  family_.write(wider, folder_.path());
  LlamaRunner exact(folder_.path(), {.threads = 2, .dtype = DType::float32});
  const Rows expected = logits_in_chunks(exact, tokens, {kPrompt, 1});
  int taken = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const DecodeChoice& choice : fused_choices(kFirstGpu.kind)) {
      LlamaRunner model = runner(dtype, 1, choice);
      const FusedDecode decode{.choice = choice, .page_size = 16, .num_sms = model.executor().lane().num_sms};
      if (!model.executor().model().why_not_fused(decode).empty()) continue;
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << text_of(choice, kFirstGpu.kind));
      const Rows fused = logits_in_chunks(model, tokens, {kPrompt, 1});
      EXPECT_EQ(model.num_fused(), static_cast<int>(tokens.size() - kPrompt));
      EXPECT_LE(mean_difference(fused, expected), bound(dtype));
      LlamaRunner again = runner(dtype, 1, choice);
      EXPECT_EQ(logits_in_chunks(again, tokens, {kPrompt, 1}), fused);
      ++taken;
    }
  EXPECT_GE(taken, 4) << "clusters of two sizes at least, of both dtypes";
}

// A context of more positions than a piece has: the state is carried.
TEST_F(ExpandedOnGpu, PiecesOfALongContextGiveWhatAbsorbedRowsDo) {
  constexpr std::size_t kPiece = 16384, kLast = 300;
  std::vector<std::int32_t> tokens;
  while (tokens.size() < kPiece + kLast) tokens.push_back(tokens_[tokens.size() * 11 % tokens_.size()]);
  const auto last_rows = [&](std::size_t last_chunk) {
    LlamaRunner model(folder_.path(), {.page_size = 64,
                                       .num_pages = static_cast<int>((kPiece + kLast) / 64) + 1,
                                       .max_tokens = 512,
                                       .dtype = DType::bfloat16,
                                       .device = kFirstGpu});
    std::vector<std::size_t> chunks(kPiece / 512, 512);
    chunks.push_back(last_chunk);
    const Rows rows = logits_in_chunks(model, tokens, chunks);
    return Rows(rows.end() - kLast, rows.end());
  };
  const Rows expanded = last_rows(kLast), absorbed = last_rows(kLast / 2);
  EXPECT_LE(mean_difference(expanded, absorbed), bound(DType::bfloat16));
  EXPECT_NE(expanded, absorbed);
}

// A step has rows of both ways, in any order of sequences.
TEST_F(ExpandedOnGpu, RowsOfBothWaysShareAStep) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    LlamaRunner alone = runner(dtype), together = runner(dtype);
    const Rows expected = logits_in_chunks(alone, tokens_, {200, 1, 1, 3, 215});
    auto first = together.sequence(), second = together.sequence(), third = together.sequence();
    const auto agrees = [&](const Rows& rows, std::size_t row, std::size_t begin, std::size_t end) {
      const auto slice = [](const Rows& of, std::size_t from, std::size_t count) {
        return Rows(of.begin() + static_cast<std::ptrdiff_t>(from),
                    of.begin() + static_cast<std::ptrdiff_t>(from + count));
      };
      EXPECT_LE(mean_difference(slice(rows, row, end - begin), slice(expected, begin, end - begin)), bound(dtype))
          << name_of(dtype) << ", row " << row << ", token " << begin;
    };
    agrees(together.step({{&first, part(0, 200)}}), 0, 0, 200);
    Rows rows = together.step({{&first, part(200, 201)}, {&second, part(0, 200)}});
    agrees(rows, 0, 200, 201);
    agrees(rows, 1, 0, 200);
    rows = together.step({{&second, part(200, 201)}, {&third, part(0, 200)}, {&first, part(201, 202)}});
    agrees(rows, 0, 200, 201);
    agrees(rows, 1, 0, 200);
    agrees(rows, 201, 201, 202);
    rows = together.step({{&first, part(202, 205)}, {&second, part(201, 202)}, {&third, part(200, 201)}});
    agrees(rows, 0, 202, 205);
    rows = together.step({{&first, part(205, 420)}, {&third, part(201, 202)}, {&second, part(202, 205)}});
    agrees(rows, 0, 205, 420);
    agrees(rows, 215, 201, 202);
    agrees(rows, 216, 202, 205);
    rows = together.step({{&third, part(202, 205)}});
    rows = together.step({{&third, part(205, 420)}, {&second, part(205, 420)}});
    agrees(rows, 0, 205, 420);
    agrees(rows, 215, 205, 420);
    // Two texts that have nothing in common, expanded in one call.
    auto fourth = together.sequence(), fifth = together.sequence(), other = alone.sequence();
    const std::vector<std::int32_t> other_text(tokens_.rbegin(), tokens_.rbegin() + 200);
    const Rows of_other = alone.step({{&other, other_text}});
    rows = together.step({{&fourth, part(0, 200)}, {&fifth, other_text}});
    agrees(rows, 0, 0, 200);
    EXPECT_LE(mean_difference(Rows(rows.begin() + 200, rows.end()), of_other), bound(dtype)) << name_of(dtype);
  }
}

TEST_F(ExpertsFamilyTest, NanInARouterReachesTheLogits) {
  for (const auto& [name, router] : {std::pair("mixtral", "model.layers.1.block_sparse_moe.gate.weight"),
                                     std::pair("v2", "model.layers.2.mlp.gate.weight")}) {
    const TemporaryFolder folder;
    family_.write(family_.find(name), folder.path(), {.without = "", .poisoned = router});
    LlamaRunner runner(folder.path(), with_float32({}));
    const Rows rows = logits_in_chunks(runner, {1, 2, 3}, {3});
    for (const auto& row : rows) EXPECT_TRUE(std::isnan(row[0])) << name;
  }
}

TEST_F(ExpertsFamilyTest, NanInTheBiasOfAChoiceIsRefused) {
  const TemporaryFolder folder;
  family_.write(family_.find("v3"), folder.path(),
                {.without = "", .poisoned = "model.layers.1.mlp.gate.e_score_correction_bias"});
  EXPECT_THAT([&] { load_model(Checkpoint(folder.path()), {}); },
              testing::ThrowsMessage<InputError>(
                  AllOf(HasSubstr("gate.e_score_correction_bias\" is damaged"), HasSubstr("NaN or infinite"))));
}

TEST_F(ExpertsFamilyTest, MissingExpertsAreNamed) {
  EXPECT_THAT(error_of(family_.find("mixtral"), {.without = "model.layers.1.block_sparse_moe.experts.3.w3.weight"}),
              HasSubstr("tensor \"model.layers.1.block_sparse_moe.experts.3.w3.weight\" is missing"));
  EXPECT_THAT(error_of(family_.find("v2"), {.without = "model.layers.2.mlp.experts.7.down_proj.weight"}),
              HasSubstr("tensor \"model.layers.2.mlp.experts.7.down_proj.weight\" is missing"));
  EXPECT_THAT(error_of(family_.find("v3"), {.without = "model.layers.1.mlp.gate.e_score_correction_bias"}),
              HasSubstr("e_score_correction_bias\" is missing"));
  EXPECT_THAT(error_with("mixtral", {{"num_local_experts", 3}}),
              AllOf(HasSubstr("block_sparse_moe.gate.weight"), HasSubstr("[4, 48]"), HasSubstr("num_local_experts")));
}

TEST_F(ExpertsFamilyTest, ConfigsThatDoNotFitAreNamed) {
  EXPECT_THAT(error_with("mixtral", {{"num_experts_per_tok", 5}}),
              AllOf(HasSubstr("num_experts_per_tok"), HasSubstr("above num_local_experts 4")));
  EXPECT_THAT(error_with("v2", {{"n_group", 3}}), AllOf(HasSubstr("n_group"), HasSubstr("do not divide")));
  EXPECT_THAT(error_with("v2", {{"topk_group", 5}}), AllOf(HasSubstr("topk_group"), HasSubstr("above n_group 4")));
  EXPECT_THAT(error_with("v2", {{"num_experts_per_tok", 5}}),
              AllOf(HasSubstr("num_experts_per_tok"), HasSubstr("above the 4 experts to choose from")));
  EXPECT_THAT(error_with("v2", {{"kv_lora_rank", 1020}}), AllOf(HasSubstr("kv_lora_rank"), HasSubstr("at most 1024")));
  EXPECT_THAT(error_with("v2", {{"kv_lora_rank", 33}}),
              AllOf(HasSubstr("kv_a_proj_with_mqa"), HasSubstr("kv_lora_rank in config.json is 33")));
  EXPECT_THAT(error_with("v2", {{"qk_rope_head_dim", 7}}), AllOf(HasSubstr("qk_rope_head_dim"), HasSubstr("odd")));
  EXPECT_THAT(error_with("v2", {{"num_key_value_heads", 2}}),
              HasSubstr("num_key_value_heads: 2 is not num_attention_heads 4"));
  EXPECT_THAT(error_with("v2", {{"n_group", nullptr}}),
              HasSubstr("n_group is null, and topk_method chooses among groups"));
  EXPECT_THAT(error_with("v2", {{"first_k_dense_replace", 2}}),
              AllOf(HasSubstr("layer 1 has experts"), HasSubstr("from 2 on (first_k_dense_replace")));
  EXPECT_THAT(error_with("v2", {{"first_k_dense_replace", 0}}), HasSubstr("layer 0 has no experts"));
  EXPECT_THAT(error_with("v2", {{"q_lora_rank", 21}}),
              AllOf(HasSubstr("q_a_proj"), HasSubstr("q_lora_rank in config.json is 21")));
}

TEST_F(ExpertsFamilyTest, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(error_with("v3", {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("fp8")));
  EXPECT_THAT(error_with("v2", {{"norm_topk_prob", true}}), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(error_with("v2", {{"topk_method", "noaux_tc"}}), HasSubstr("topk_method"));
  EXPECT_THAT(error_with("v2", {{"moe_layer_freq", 2}}), HasSubstr("moe_layer_freq"));
  EXPECT_THAT(error_with("v2", {{"attention_bias", true}}), HasSubstr("attention_bias"));
}

// DeepSeek-V3's config.json counts its heads that predict several tokens; a folder may have none of their tensors.
TEST_F(ExpertsFamilyTest, HeadsThatPredictSeveralTokensAreRefusedWhereTheyAre) {
  nlohmann::json v3 = family_.find("v3");
  const Rows expected = run(v3, {{64}, {}});
  v3["config"]["num_nextn_predict_layers"] = 1;
  EXPECT_EQ(error_of(v3), "");
  EXPECT_EQ(run(v3, {{64}, {}}), expected);
  v3["tensors"].push_back(
      {{"name", "model.layers.3.eh_proj.weight"}, {"shape", {48, 96}}, {"deviation", 0.1}, {"offset", 0}});
  v3["tensors"].push_back(
      {{"name", "model.layers.3.enorm.weight"}, {"shape", {48}}, {"deviation", 0.1}, {"offset", 1}});
  EXPECT_THAT(error_of(v3),
              AllOf(HasSubstr("model.safetensors: tensor \"model.layers.3.e"), HasSubstr("(one of 2 such)"),
                    HasSubstr("(MTP), which is not supported yet"), HasSubstr("save_pretrained")));
  v3["config"]["num_nextn_predict_layers"] = -1;
  EXPECT_THAT(error_of(v3), AllOf(HasSubstr("num_nextn_predict_layers"), HasSubstr("-1")));
}

TEST_F(ExpertsFamilyTest, MoreRanksThanHeadsAreNamed) {
  const TemporaryFolder folder;
  family_.write(family_.find("v2-odd"), folder.path());
  try {
    LlamaRunner(folder.path(), {.ranks = 4});
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the model has 3 attention heads"));
  }
}

TEST_F(ExpertsFamilyTest, NormsDividedByTokenAreNotForExperts) {
  const TemporaryFolder folder;
  family_.write(family_.find("v2-odd"), folder.path());
  try {
    LlamaRunner(folder.path(), {.ranks = 2, .tp_mode = TpMode::sequence});
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--tp-mode sequence: is not for models with experts"));
  }
}

TEST(MixtralConfig, HasTheDefaultsOfTransformers) {
  const nlohmann::json value = {{"architectures", {"MixtralForCausalLM"}},
                                {"vocab_size", 100},
                                {"hidden_size", 64},
                                {"intermediate_size", 32},
                                {"num_hidden_layers", 1},
                                {"num_attention_heads", 16}};
  const MixtralConfig config = parse_mixtral_config(JsonField(value, "config.json"));
  EXPECT_EQ(config.num_experts, 8);
  EXPECT_EQ(config.top_k, 2);
  EXPECT_EQ(config.llama.num_kv_heads, 8);
  EXPECT_EQ(config.llama.rope.theta, 1e6);
  EXPECT_EQ(config.llama.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.llama.windows, std::vector<int>{0});
  EXPECT_EQ(config.llama.max_position, 131072);
}

// DeepSeek-V2-Lite's config.json.
TEST(DeepseekConfig, ReadsV2Lite) {
  const nlohmann::json value = {{"architectures", {"DeepseekV2ForCausalLM"}},
                                {"vocab_size", 102400},
                                {"hidden_size", 2048},
                                {"intermediate_size", 10944},
                                {"moe_intermediate_size", 1408},
                                {"num_hidden_layers", 27},
                                {"num_attention_heads", 16},
                                {"num_key_value_heads", 16},
                                {"q_lora_rank", nullptr},
                                {"kv_lora_rank", 512},
                                {"qk_nope_head_dim", 128},
                                {"qk_rope_head_dim", 64},
                                {"v_head_dim", 128},
                                {"n_routed_experts", 64},
                                {"n_shared_experts", 2},
                                {"num_experts_per_tok", 6},
                                {"first_k_dense_replace", 1},
                                {"topk_method", "greedy"},
                                {"n_group", 1},
                                {"topk_group", 1},
                                {"norm_topk_prob", false},
                                {"routed_scaling_factor", 1.0},
                                {"max_position_embeddings", 163840},
                                {"rope_scaling",
                                 {{"type", "yarn"},
                                  {"factor", 40},
                                  {"mscale", 0.707},
                                  {"mscale_all_dim", 0.707},
                                  {"beta_fast", 32},
                                  {"beta_slow", 1},
                                  {"original_max_position_embeddings", 4096}}}};
  const DeepseekConfig config = parse_deepseek_config(JsonField(value, "config.json"));
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_EQ(config.num_dense_layers, 1);
  EXPECT_EQ(config.rule.top_k, 6);
  EXPECT_FALSE(config.rule.normalized);
  EXPECT_FALSE(config.choice_bias);
  EXPECT_EQ(config.max_position, 163840);
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_NEAR(config.score_scale, mscale * mscale / std::sqrt(192.0), 1e-7);
  EXPECT_EQ(rope_frequencies(config.rope, config.rope_dim).scale, 1);
}

}  // namespace
}  // namespace heddle
