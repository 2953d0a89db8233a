// Decode steps whose attention is one operator (fused/decode_block.h): every setting of the Llama family against
// transformers, wide heads in 2-byte dtypes, and what is refused with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu_here.h"
#include "models/experts_family.h"
#include "models/llama_family.h"
#include "models/llama_heads.h"
#include "models/llama_runner.h"
#include "parallel/decode_choice.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using DecodeRows = std::vector<std::vector<float>>;

constexpr DecodeChoice kInOne{.form = DecodeChoice::Form::clusters};
constexpr DecodeChoice kInTwoUnits{.form = DecodeChoice::Form::clusters, .parts = 2};

double largest_gap(const DecodeRows& a, const DecodeRows& b) {
  require(a.size() == b.size(), "{} rows, {} rows", a.size(), b.size());
  Distance distance;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) distance.add(a[i][j], b[i].at(j));
  return distance.largest();
}

class FusedDecodeOnRanks : public testing::TestWithParam<int> {};

// Biases, norms of heads, windows, rotations of all kinds, tied embeddings. Float32 rounding in another order stays below
// the bound, as with separate operators.
TEST_P(FusedDecodeOnRanks, EveryCaseOfTheFamilyAgreesWithTransformers) {
  constexpr double kBound = 1e-4;
  const LlamaFamily family;
  for (const auto& c : family.cases()) {
    const TemporaryFolder folder;
    family.write(c, folder.path());
    LlamaRunner runner(folder.path(), {.threads = 2, .ranks = GetParam(), .decode = kInOne});
    const DecodeRows all = logits_in_chunks(runner, family.tokens(), {50, 1});
    EXPECT_EQ(runner.num_fused(), static_cast<int>(family.tokens().size()) - 50);
    DecodeRows kept;
    for (const std::size_t row : family.rows()) kept.push_back(all[row]);
    EXPECT_LE(largest_gap(kept, family.golden(c["name"])), kBound) << c["name"] << ": " << c["why"];
  }
}

INSTANTIATE_TEST_SUITE_P(, FusedDecodeOnRanks, testing::Values(1, 2),
                         [](const auto& test) { return "on_" + std::to_string(test.param) + "_ranks"; });

// From the first token on, and not only behind a prompt.
TEST(FusedDecode, AgreesWithSeparateOperatorsFromTheFirstTokenOn) {
  for (const char* name : {"gqa", "mha-tied", "mqa-sharded"}) {
    LlamaRunner separate(golden_folder(name), {.dtype = DType::float32});
    LlamaRunner fused(golden_folder(name), {.threads = 2, .dtype = DType::float32, .decode = kInOne});
    const std::vector<std::int32_t> tokens{5, 1, 9, 30, 2, 2, 17, 4, 11};
    EXPECT_LE(largest_gap(logits_in_chunks(fused, tokens, {1}), logits_in_chunks(separate, tokens, {1})), 1e-4) << name;
    EXPECT_EQ(fused.num_fused(), std::ssize(tokens));
  }
}

TEST(FusedDecode, ModelsWithExpertsAgreeWithTransformers) {
  const ExpertsFamily family;
  const auto& c = family.find("mixtral-window");
  const TemporaryFolder folder;
  family.write(c, folder.path());
  LlamaRunner separate(folder.path(), {.dtype = DType::float32});
  LlamaRunner fused(folder.path(), {.threads = 2, .dtype = DType::float32, .ranks = 2, .decode = kInOne});
  const std::vector<std::int32_t> tokens{5, 1, 9, 30, 2, 2, 17, 4, 11};
  EXPECT_LE(largest_gap(logits_in_chunks(fused, tokens, {3, 1}), logits_in_chunks(separate, tokens, {3, 1})), 1e-4);
  EXPECT_EQ(fused.num_fused(), 6);
}

// Latent attention without a latent of queries; its widest heads are DeepSeek-V2-Lite's own. Prompts before are expanded or
// absorbed, as ever.
TEST_P(FusedDecodeOnRanks, LatentAttentionAgreesWithTransformers) {
  constexpr double kBound = 1e-4;
  const ExpertsFamily family;
  int num_fused = 0;
  for (const auto& c : family.cases()) {
    if (!c["config"].contains("kv_lora_rank") || c["config"]["num_attention_heads"].get<int>() % GetParam() != 0)
      continue;
    const TemporaryFolder folder;
    family.write(c, folder.path());
    LlamaRunner runner(folder.path(),
                       {.threads = 2, .page_size = 5, .dtype = DType::float32, .ranks = GetParam(), .decode = kInOne});
    const bool has_query_latent = c["config"].contains("q_lora_rank") && c["config"]["q_lora_rank"].is_number();
    const std::string why = runner.executor().model().why_not_fused({.choice = kInOne, .page_size = 5});
    EXPECT_EQ(why, has_query_latent ? "queries have a latent of their own (q_lora_rank), the fused block of latent "
                                      "attention takes none"
                                    : "");
    if (!why.empty()) continue;
    const DecodeRows all = logits_in_chunks(runner, family.tokens(), {20, 1});
    EXPECT_EQ(runner.num_fused(), static_cast<int>(family.tokens().size()) - 20);
    DecodeRows kept;
    for (const std::size_t row : family.rows()) kept.push_back(all[row]);
    EXPECT_LE(largest_gap(kept, family.golden(c["name"])), kBound) << c["name"] << ": " << c["why"];
    ++num_fused;
  }
  EXPECT_GE(num_fused, 7);
}

// In each mode in which ranks add with their residual whole.
TEST(FusedDecode, RanksOfEveryModeAgree) {
  const std::vector<std::int32_t> tokens{5, 1, 9, 30, 2, 2, 17, 4, 11};
  LlamaRunner separate(golden_folder("gqa"), {.dtype = DType::float32});
  const DecodeRows expected = logits_in_chunks(separate, tokens, {4, 1});
  for (const TpMode mode : {TpMode::standard, TpMode::symmetric, TpMode::fused}) {
    LlamaRunner fused(golden_folder("gqa"),
                      {.threads = 2, .dtype = DType::float32, .ranks = 2, .tp_mode = mode, .decode = kInOne});
    EXPECT_LE(largest_gap(logits_in_chunks(fused, tokens, {4, 1}), expected), 1e-4) << name_of(mode);
    EXPECT_EQ(fused.num_fused(), 5) << name_of(mode);
  }
}

// Texts of several lengths, a token each; twice, because each call finds the counters that another left.
DecodeRows decoded_together(LlamaRunner& runner, int batch, int steps) {
  std::vector<LlamaRunner::Sequence> sequences;
  for (int i = 0; i < batch; ++i) {
    sequences.push_back(runner.sequence());
    std::vector<std::int32_t> prompt;
    for (int j = 0; j < 1 + 7 * i % 23; ++j) prompt.push_back((3 * i + 5 * j) % 60 + 1);
    runner.step({{&sequences.back(), prompt}});
  }
  DecodeRows rows;
  for (int step = 0; step < steps; ++step) {
    std::vector<LlamaRunner::Chunk> chunks;
    for (int i = 0; i < batch; ++i)
      chunks.push_back({&sequences[static_cast<std::size_t>(i)], {(step + 2 * i) % 60 + 1}});
    for (auto& row : runner.step(chunks)) rows.push_back(std::move(row));
  }
  return rows;
}

void expect_same_bits_again_and_alone(const std::filesystem::path& folder, DecodeChoice decode) {
  constexpr int kBatch = 5, kSteps = 4;
  LlamaRunner::Options options{.threads = 2, .num_pages = 128, .decode = decode};
  LlamaRunner together(folder, options), again(folder, options);
  const DecodeRows rows = decoded_together(together, kBatch, kSteps);
  EXPECT_EQ(decoded_together(again, kBatch, kSteps), rows);
  LlamaRunner alone(folder, options);
  const DecodeRows first = decoded_together(alone, 1, kSteps);
  for (int step = 0; step < kSteps; ++step)
    EXPECT_EQ(first[static_cast<std::size_t>(step)], rows[static_cast<std::size_t>(step * kBatch)]);
}

TEST(FusedDecode, GivesTheSameBitsAgainAndForEachTextAlone) {
  expect_same_bits_again_and_alone(golden_folder("gqa"), kInTwoUnits);
}

TEST(FusedDecode, OfLatentsGivesTheSameBitsAgainAndForEachTextAlone) {
  const ExpertsFamily family;
  const TemporaryFolder folder;
  family.write(family.find("v2-lite"), folder.path());
  expect_same_bits_again_and_alone(folder.path(), kInOne);
}

std::string why_not(const std::filesystem::path& folder, const LoadOptions& loading, const FusedDecode& decode,
                    int ranks = 1) {
  if (ranks == 1) return load_model(Checkpoint(folder), loading)->why_not_fused(decode);
  return outline_ranks(Checkpoint(folder), loading, ranks).front().model->why_not_fused(decode);
}

TEST(FusedDecode, WhatItDoesNotTakeHasAReason) {
  const auto gqa = golden_folder("gqa");
  const FusedDecode one{.choice = kInOne, .num_tokens = 1, .page_size = 32};
  EXPECT_EQ(why_not(gqa, {}, one), "");
  EXPECT_EQ(why_not(gqa, {.dtype = DType::bfloat16}, one), "");
  EXPECT_EQ(why_not(gqa, {}, one, 2), "");
  FusedDecode other = one;
  other.num_tokens = 17;
  EXPECT_EQ(why_not(gqa, {}, other), "17 tokens, the fused block takes up to 16");
  other = one;
  other.choice.cluster = 3;
  EXPECT_EQ(why_not(gqa, {}, other), "clusters of 3 blocks, expected 1, 2, 4, 8 or 16");
  EXPECT_EQ(why_not(gqa, {.dtype = DType::float16}, one),
            "it rounds to the weights' dtype, float16, and this model computes in float32");
  EXPECT_THAT(why_not(gqa, {.context_ranks = 2}, one, 2), HasSubstr("--cp"));
  EXPECT_EQ(why_not(gqa, {}, one, 4), "ranks have different numbers of heads");
  const ExpertsFamily family;
  const TemporaryFolder folder;
  family.write(family.find("v2-lite"), folder.path());
  EXPECT_EQ(why_not(folder.path(), {}, one), "");
  EXPECT_EQ(why_not(folder.path(), {}, other), "clusters of 3 blocks, expected 1, 2, 4, 8 or 16");
  EXPECT_EQ(why_not(folder.path(), {.dtype = DType::float16}, one),
            "it rounds to the weights' dtype, float16, and this model computes in float32");
  EXPECT_THAT(why_not(folder.path(), {.context_ranks = 2}, one, 2), HasSubstr("--cp"));
  EXPECT_EQ(why_not(folder.path(), {}, one, 3), "ranks have different numbers of heads");
  other = one;
  other.choice.parts = 2;
  EXPECT_EQ(why_not(folder.path(), {}, other), "2 parts of the query heads, latent attention has a cluster for each");
  other.choice = {.form = DecodeChoice::Form::streamed};
  EXPECT_EQ(why_not(folder.path(), {}, other), "latent attention has no streamed form");
}

// A plan for which no memory was planned, or with more than a token a text.
TEST(FusedDecode, PlansThatCannotHaveItAreInvalid) {
  StepPlan plan{.tokens = {1}, .positions = {0}, .sequences = {{.num_tokens = 1, .context_len = 1, .num_pages = 1}}};
  plan.pages = {0};
  plan.samples = {{.position = 1, .params = {}}};
  plan.choices.decode = kInOne;
  StepLimits limits;
  EXPECT_THROW(validate(plan, limits, 4, 1, 10), InvalidArgument);
  limits.fused_decode = true;
  validate(plan, limits, 4, 1, 10);
  plan.samples.clear();
  EXPECT_THROW(validate(plan, limits, 4, 1, 10), InvalidArgument);
}

struct FusedHeadsOn {
  const char* name;
  DType dtype;
  Device device;
};

// Heads as wide as real ones.
class FusedDecodeHeads : public testing::TestWithParam<FusedHeadsOn> {
 protected:
  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::cpu) return;
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  LlamaRunner runner(DecodeChoice decode) const { return runner(decode, GetParam().dtype, GetParam().device); }
  LlamaRunner runner(DecodeChoice decode, DType dtype, Device device) const {
    const TemporaryFolder folder;
    heads_.write(folder.path());
    return {folder.path(),
            {.threads = 2,
             .page_size = 16,
             .num_pages = kMost * 17,
             .max_sequences = kMost,
             .max_tokens = kMost * 64,
             .dtype = dtype,
             .device = device,
             .decode = decode}};
  }

  // Each choice that the model takes for a step of `batch` tokens.
  std::vector<DecodeChoice> choices(LlamaRunner& model, int batch) const {
    std::vector<DecodeChoice> taken;
    for (const DecodeChoice& choice : fused_choices(GetParam().device.kind)) {
      const Executor& executor = model.executor();
      const FusedDecode decode{
          .choice = choice, .num_tokens = batch, .page_size = 16, .num_sms = executor.lane().num_sms};
      if (executor.model().why_not_fused(decode).empty()) taken.push_back(choice);
    }
    EXPECT_FALSE(taken.empty());
    return taken;
  }

  // Golden sequences one after the other, some behind a prompt, decoded together: the rows of all decode steps.
  DecodeRows decode(LlamaRunner& model, int batch, Distance& distance) const {
    constexpr std::size_t kSteps = 6;
    const auto sequences = heads_.sequences();
    std::vector<LlamaRunner::Sequence> own;
    std::vector<std::size_t> of;
    for (int i = 0; i < batch; ++i) {
      own.push_back(model.sequence());
      of.push_back(static_cast<std::size_t>(i) % sequences.size());
      const auto& tokens = sequences[of.back()];
      const std::size_t length = (batch == 1 ? 125 : 1 + 37 * static_cast<std::size_t>(i)) % (tokens.size() - kSteps);
      if (length > 0)
        model.step({{&own.back(), {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length)}}});
    }
    DecodeRows rows;
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::vector<LlamaRunner::Chunk> chunks;
      std::vector<std::size_t> positions;
      for (std::size_t i = 0; i < own.size(); ++i) {
        positions.push_back(own[i].tokens.size());
        chunks.push_back({&own[i], {sequences[of[i]][positions.back()]}});
      }
      const DecodeRows step_rows = model.step(chunks);
      for (std::size_t i = 0; i < own.size(); ++i) {
        heads_.compare(step_rows[i], of[i], positions[i], distance);
        rows.push_back(step_rows[i]);
      }
    }
    return rows;
  }

  static constexpr int kMost = 16;
  const LlamaHeads heads_{GetParam().name};
};

TEST_P(FusedDecodeHeads, SequencesDecodedTogetherAgreeAndRepeatBitForBit) {
  const LlamaHeads::Allowed allowed = heads_.allowed_of_logits(GetParam().dtype);
  const bool on_cpu = GetParam().device.kind == DeviceKind::cpu;
  LlamaRunner model = runner(kInOne);
  for (const int batch : on_cpu ? std::vector{1, 3} : std::vector{1, 16, 5})
    for (const DecodeChoice& choice : choices(model, batch)) {
      SCOPED_TRACE(fmt::format("{} texts, {}", batch, text_of(choice, kFirstGpu.kind)));
      Distance distance;
      model.choose_decode(choice);
      const int before = model.num_fused();
      const DecodeRows rows = decode(model, batch, distance);
      EXPECT_GE(model.num_fused(), before + 6);
      EXPECT_EQ(decode(model, batch, distance), rows) << "with the counters that were left";
      EXPECT_LE(distance.largest(), allowed.largest);
      EXPECT_LE(distance.root_mean_square(), allowed.root_mean_square);
    }
}

// Mean of the Kullback-Leibler divergences of two rows of logits.
double divergence(const DecodeRows& expected, const DecodeRows& got) {
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto log_sum = [](const std::vector<float>& row) {
      const double largest = static_cast<double>(*std::ranges::max_element(row));
      double total = 0;
      for (const float value : row) total += std::exp(static_cast<double>(value) - largest);
      return largest + std::log(total);
    };
    const double p = log_sum(expected[i]), q = log_sum(got[i]);
    for (std::size_t j = 0; j < got[i].size(); ++j) {
      const double log_p = static_cast<double>(expected[i][j]) - p, log_q = static_cast<double>(got[i][j]) - q;
      sum += std::exp(log_p) * (log_p - log_q);
    }
  }
  return sum / static_cast<double>(got.size());
}

// What rounding loses differs between two orders of the same sums. On the CPU separate operators round no queries, and keep
// new keys and values in float32 until they are in the cache; on a GPU both round the same numbers.
TEST_P(FusedDecodeHeads, DivergesFromFloat32NoMoreThanSeparateOperatorsDo) {
  if (GetParam().dtype == DType::float32) GTEST_SKIP() << "nothing is rounded";
  const bool on_cpu = GetParam().device.kind == DeviceKind::cpu;
  const int batch = on_cpu ? 3 : 8;
  Distance unused;
  LlamaRunner exact = runner({}, DType::float32, {}), separate = runner({}), fused = runner(kInOne);
  const DecodeRows expected = decode(exact, batch, unused);
  const double plain = divergence(expected, decode(separate, batch, unused));
  for (const DecodeChoice& choice : choices(fused, batch)) {
    fused.choose_decode(choice);
    const double own = divergence(expected, decode(fused, batch, unused));
    RecordProperty(fmt::format("{} of {}", text_of(choice, kFirstGpu.kind), GetParam().name),
                   fmt::format("{} {}", own, plain));
    EXPECT_LE(own, (on_cpu ? 1.5 : 1.25) * plain) << text_of(choice, kFirstGpu.kind);
  }
}

std::vector<FusedHeadsOn> fused_heads_on(Device device, std::initializer_list<DType> dtypes) {
  std::vector<FusedHeadsOn> cases;
  for (const char* name : LlamaHeads::kCases)
    for (const DType dtype : dtypes) cases.push_back({name, dtype, device});
  return cases;
}

std::string fused_case_name(const testing::TestParamInfo<FusedHeadsOn>& test) {
  std::string name = fmt::format("{}_{}", test.param.name, name_of(test.param.dtype));
  std::ranges::replace(name, '-', '_');
  return name + (test.param.device.kind == DeviceKind::cuda ? "_on_gpu" : "");
}

// float16 weights are computed with in float32 on the CPU.
INSTANTIATE_TEST_SUITE_P(, FusedDecodeHeads, testing::ValuesIn(fused_heads_on({}, {DType::float32, DType::bfloat16})),
                         fused_case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, FusedDecodeHeads,
                         testing::ValuesIn(fused_heads_on(kFirstGpu, {DType::bfloat16, DType::float16})),
                         fused_case_name);

}  // namespace
}  // namespace heddle
