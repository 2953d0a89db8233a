// The Llama family on several ranks of the CPU: the same logits as transformers' and as one rank's, whatever the slices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "models/counting_source.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "weights/safetensors.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows = std::vector<std::vector<float>>;

// Float32 rounding in another order stays well below this, as on one rank.
constexpr double kBoundOnRanks = 1e-4;

double largest_difference(const Rows& a, const Rows& b) {
  require(a.size() == b.size(), "{} rows, {} rows", a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i].size() == b[i].size(), "{} logits, {} logits", a[i].size(), b[i].size());
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double difference = std::abs(static_cast<double>(a[i][j]) - b[i][j]);
      if (!(difference <= largest)) largest = difference;  // NaN sticks
    }
  }
  return largest;
}

class LlamaRanks : public testing::TestWithParam<int> {
 protected:
  static void expect_family_on_ranks(TpMode mode) {
    const LlamaFamily family;
    int num_run = 0;
    for (const auto& c : family.cases()) {
      if (c["config"]["num_attention_heads"].get<int>() < GetParam()) continue;
      const TemporaryFolder folder;
      family.write(c, folder.path());
      LlamaRunner runner(folder.path(), {.threads = 2, .ranks = GetParam(), .tp_mode = mode});
      const Rows all = logits_in_chunks(runner, family.tokens(), {61, 64, 1, 40});
      Rows kept;
      for (const std::size_t row : family.rows()) kept.push_back(all[row]);
      EXPECT_LE(largest_difference(kept, family.golden(c["name"])), kBoundOnRanks) << c["name"] << ": " << c["why"];
      ++num_run;
    }
    EXPECT_GT(num_run, 10);
  }
};

// Biases (of what is summed over ranks, too), norms of heads, windows, tied embeddings: every setting of the family.
TEST_P(LlamaRanks, EveryCaseOfTheFamilyAgreesWithTransformers) {
  expect_family_on_ranks(TpMode::standard);
}

// With norms divided by token: steps of one row have ranks without any.
TEST_P(LlamaRanks, EveryCaseAgreesWhereEachRankNormalisesItsRowsAlone) {
  expect_family_on_ranks(TpMode::sequence);
}

// Rank 0 chooses for each step how ranks add; rows of the residual are whole again in the next.
TEST_P(LlamaRanks, StepsThatAreShardedFusedAndSeparateFollowEachOther) {
  constexpr SumForm kForms[] = {SumForm::sharded, SumForm::fused, SumForm::separate};
  const TemporaryFolder folder;
  const LlamaFamily family;
  const auto& c = family.find("qwen2");
  family.write(c, folder.path());
  int steps = 0;
  LlamaRunner::Options options{.threads = 2, .ranks = GetParam(), .tp_mode = TpMode::sequence};
  options.sums = [&](int) { return kForms[static_cast<std::size_t>(steps++ % 3)]; };
  LlamaRunner runner(folder.path(), options);
  const Rows all = logits_in_chunks(runner, family.tokens(), {7, 1, 30, 23, 64, 1, 1, 1, 38});
  Rows kept;
  for (const std::size_t row : family.rows()) kept.push_back(all[row]);
  EXPECT_LE(largest_difference(kept, family.golden(c["name"])), kBoundOnRanks);
  EXPECT_GE(steps, 9) << "each form three times";
}

// 4 heads of 2 KV heads: on 3 ranks their shares are unequal, on 4 two ranks share a KV head.
INSTANTIATE_TEST_SUITE_P(, LlamaRanks, testing::Values(2, 3, 4),
                         [](const auto& test) { return "on_" + std::to_string(test.param) + "_ranks"; });

struct GoldenOnRanks {
  const char* folder;
  int ranks;
  TpMode mode = TpMode::standard;
};

// Vocabularies, heads and features that no number of ranks divides; sharded files; KV heads that several ranks share.
class LlamaGoldenRanks : public testing::TestWithParam<GoldenOnRanks> {};

TEST_P(LlamaGoldenRanks, PrefillAndDecodeAgreeWithTransformers) {
  const auto folder = golden_folder(GetParam().folder);
  const nlohmann::json golden_json = parse_json(read_file(folder / "golden.json", 1 << 20), "golden.json");
  const SafetensorsFile goldens(folder / "golden.safetensors");
  const auto golden = [&](const std::string& name) {
    const auto found = std::ranges::find(goldens.tensors(), name, &StoredTensor::name);
    require(found != goldens.tensors().end(), "no golden {}", name);
    Rows rows(static_cast<std::size_t>(found->shape[0]), std::vector<float>(static_cast<std::size_t>(found->shape[1])));
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(rows[i].data(), found->bytes.data() + i * rows[i].size() * sizeof(float),
                  rows[i].size() * sizeof(float));
    return rows;
  };
  LlamaRunner::Options options{.dtype = DType::float32, .ranks = GetParam().ranks, .tp_mode = GetParam().mode};
  if (GetParam().mode == TpMode::weave) options.border = [](int num_tokens) { return num_tokens / 2; };
  LlamaRunner prefill(folder, options), decode(folder, options);
  EXPECT_LE(largest_difference(logits_in_chunks(prefill, golden_json["tokens"], {64}), golden("prefill")),
            kBoundOnRanks);
  EXPECT_LE(largest_difference(logits_in_chunks(decode, golden_json["tokens"], {1}),
                               logits_in_chunks(prefill, golden_json["tokens"], {64})),
            0);
}

INSTANTIATE_TEST_SUITE_P(
    , LlamaGoldenRanks,
    testing::Values(GoldenOnRanks{"gqa", 2}, GoldenOnRanks{"gqa", 3}, GoldenOnRanks{"gqa", 4}, GoldenOnRanks{"gqa", 6},
                    GoldenOnRanks{"mha-tied", 2}, GoldenOnRanks{"mha-tied", 3}, GoldenOnRanks{"mqa-sharded", 3},
                    GoldenOnRanks{"mqa-sharded", 4}, GoldenOnRanks{"gqa-bfloat16", 4},
                    GoldenOnRanks{"gqa", 2, TpMode::symmetric}, GoldenOnRanks{"gqa", 3, TpMode::symmetric},
                    GoldenOnRanks{"gqa", 4, TpMode::symmetric}, GoldenOnRanks{"gqa", 2, TpMode::weave},
                    GoldenOnRanks{"gqa", 3, TpMode::weave}, GoldenOnRanks{"gqa", 4, TpMode::weave},
                    GoldenOnRanks{"mqa-sharded", 4, TpMode::weave}, GoldenOnRanks{"gqa", 2, TpMode::sequence},
                    GoldenOnRanks{"gqa", 3, TpMode::sequence}, GoldenOnRanks{"gqa", 4, TpMode::sequence},
                    GoldenOnRanks{"gqa", 2, TpMode::fused}, GoldenOnRanks{"gqa", 3, TpMode::fused},
                    GoldenOnRanks{"gqa", 4, TpMode::fused}, GoldenOnRanks{"mqa-sharded", 3, TpMode::fused},
                    GoldenOnRanks{"gqa-bfloat16", 4, TpMode::fused}, GoldenOnRanks{"tied-float16", 4}),
    [](const auto& test) {
      std::string name = test.param.folder;
      std::ranges::replace(name, '-', '_');
      return name + "_on_" + std::to_string(test.param.ranks) + "_ranks" +
             (test.param.mode == TpMode::standard ? "" : "_" + std::string(name_of(test.param.mode)));
    });

// A Qwen2 with the heads of Qwen2.5-7B, 28 of them for 4 of keys and values, and random weights.
void write_28_heads(const std::filesystem::path& folder) {
  constexpr std::int64_t kHidden = 56, kHeads = 28, kKvHeads = 4, kHeadDim = 8, kInner = 90, kVocabulary = 101;
  nlohmann::json config = LlamaFamily().find("qwen2")["config"];
  config.update({{"hidden_size", kHidden},
                 {"num_attention_heads", kHeads},
                 {"num_key_value_heads", kKvHeads},
                 {"head_dim", kHeadDim},
                 {"intermediate_size", kInner},
                 {"vocab_size", kVocabulary}});
  const StoredDType float32{.name = "F32", .bits = 32, .dtype = DType::float32};
  std::vector<TensorToWrite> tensors{{"model.embed_tokens.weight", float32, {kVocabulary, kHidden}},
                                     {"lm_head.weight", float32, {kVocabulary, kHidden}},
                                     {"model.norm.weight", float32, {kHidden}}};
  for (int layer = 0; layer < config["num_hidden_layers"].get<int>(); ++layer) {
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      tensors.push_back({fmt::format("model.layers.{}.{}", layer, name), float32, std::move(shape)});
    };
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) add(norm, {kHidden});
    for (const auto& [name, heads] : {std::pair{"q", kHeads}, {"k", kKvHeads}, {"v", kKvHeads}}) {
      add(fmt::format("self_attn.{}_proj.weight", name), {heads * kHeadDim, kHidden});
      add(fmt::format("self_attn.{}_proj.bias", name), {heads * kHeadDim});
    }
    add("self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim});
    for (const char* name : {"mlp.gate_proj.weight", "mlp.up_proj.weight"}) add(name, {kInner, kHidden});
    add("mlp.down_proj.weight", {kHidden, kInner});
  }
  write_file(folder / "config.json", config.dump());
  std::mt19937 random(28);
  std::normal_distribution<float> normal(0, 0.3F);
  write_safetensors(folder / "model.safetensors", tensors, [&](std::size_t i, const ByteSink& sink) {
    std::int64_t count = 1;
    for (const std::int64_t size : tensors[i].shape) count *= size;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    sink(std::as_bytes(std::span(values)));
  });
}

// 3 ranks have whole KV heads, not as many each; 8 have half a KV head's group each, and 7 unequal parts of groups.
TEST(LlamaOnRanks, HeadsAreSharedOutUnevenly) {
  const TemporaryFolder folder;
  write_28_heads(folder.path());
  const std::vector<std::int32_t> tokens = {5, 100, 7, 3, 77, 0, 42, 9, 58, 31, 2, 99};
  LlamaRunner one(folder.path(), {});
  const Rows expected = logits_in_chunks(one, tokens, {7, 1, 4});
  double largest = 0;
  for (const float logit : expected.back()) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  for (const int ranks : {3, 7, 8}) {
    LlamaRunner several(folder.path(), {.ranks = ranks});
    EXPECT_LE(largest_difference(logits_in_chunks(several, tokens, {7, 1, 4}), expected), kBoundOnRanks)
        << ranks << " ranks";
  }
  EXPECT_GT(largest, 1) << "logits that differ by little would show no fault";
}

// As on one rank: a row's bits do not depend on chunks or threads.
TEST(LlamaOnRanks, NoChunkingAndNoThreadsChangeABit) {
  const LlamaFamily family;
  const auto& c = family.find("qwen3-v5");
  const TemporaryFolder folder;
  family.write(c, folder.path());
  LlamaRunner whole(folder.path(), {.ranks = 3}), chunks(folder.path(), {.threads = 6, .page_size = 7, .ranks = 3});
  EXPECT_EQ(logits_in_chunks(whole, family.tokens(), {64}), logits_in_chunks(chunks, family.tokens(), {50, 7, 1, 33}));
}

// The fused operator takes its regime by size; forced, each of them is taken by small steps, too, and all give the bits
// of an all-reduce and a norm, also where a step is in two parts that take turns.
TEST(LlamaOnRanks, EveryModeAndRegimeHasTheBitsOfTheDefault) {
  const LlamaFamily family;
  const auto& c = family.find("qwen3-v5");
  const TemporaryFolder folder;
  family.write(c, folder.path());
  const std::vector<std::size_t> chunks{61, 1, 2, 40};
  for (const int ranks : {2, 3}) {
    LlamaRunner standard(folder.path(), {.ranks = ranks});
    const Rows expected = logits_in_chunks(standard, family.tokens(), chunks);
    for (const TpMode mode : {TpMode::symmetric, TpMode::fused, TpMode::weave}) {
      LlamaRunner other(folder.path(), {.ranks = ranks, .tp_mode = mode});
      EXPECT_EQ(logits_in_chunks(other, family.tokens(), chunks), expected) << name_of(mode);
    }
    for (const auto regime :
         {AllReduceNormRegime::one_shot, AllReduceNormRegime::two_phase, AllReduceNormRegime::pipelined}) {
      LlamaRunner other(folder.path(), {.ranks = ranks, .tp_mode = TpMode::fused, .regime = regime});
      EXPECT_EQ(logits_in_chunks(other, family.tokens(), chunks), expected)
          << name_of(regime) << ", " << ranks << " ranks";
      LlamaRunner woven(folder.path(),
                        {.ranks = ranks, .tp_mode = TpMode::weave, .regime = regime, .border = [](int num_tokens) {
                           return num_tokens / 3;
                         }});
      EXPECT_EQ(logits_in_chunks(woven, family.tokens(), chunks), expected)
          << name_of(regime) << " in two parts, " << ranks << " ranks";
    }
  }
}

TEST(LlamaOnRanks, MoreRanksThanHeadsAreRefusedBeforeAnythingIsRead) {
  const Checkpoint checkpoint(golden_folder("gqa"));
  try {
    load_ranks(checkpoint, {}, 7);
    FAIL() << "7 ranks share 6 heads";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("7 ranks"), HasSubstr("6 attention heads"), HasSubstr("6 ranks at most")));
  }
}

// Names of tensors that every rank reads whole: norms.
std::size_t bytes_on_every_rank(const ModelSource& source) {
  std::size_t bytes = 0;
  for (const std::string_view name : source.names())
    if (name.find("norm") != std::string_view::npos) bytes += source.find(name)->size_bytes;
  return bytes;
}

// From a file, and generated.
TEST(LlamaOnRanks, ReadTogetherWhatOneRankReadsAndTheNormsOncePerRank) {
  for (const char* model : {"tests/data/llama/gqa", "synth:tiny"}) {
    const bool synthetic = std::string_view(model).starts_with("synth:");
    const auto source = open_model(synthetic ? model : (std::filesystem::path(HEDDLE_SOURCE_DIR) / model).string());
    const CountingSource whole(*source), parts(*source);
    load_model(whole, {});
    EXPECT_EQ(whole.bytes_read(), source->total_bytes()) << model;
    load_ranks(parts, {}, 2);
    EXPECT_EQ(parts.bytes_read(), source->total_bytes() + bytes_on_every_rank(*source)) << model;
  }
}

TEST(LlamaOnRanks, ARankReadsAndHoldsItsSliceAlone) {
  const Checkpoint checkpoint(golden_folder("gqa"));
  const std::size_t norms = bytes_on_every_rank(checkpoint), rest = checkpoint.total_bytes() - norms;
  for (int rank = 0; rank < 2; ++rank) {
    const CountingSource counting(checkpoint);
    const LoadOptions options{.place = {.rank = rank, .ranks = 2}};
    const std::size_t held = load_model(counting, options)->shape().weight_bytes;
    EXPECT_NEAR(static_cast<double>(counting.bytes_read()), static_cast<double>(norms + rest / 2),
                0.01 * static_cast<double>(rest));                                            // 331 tokens
    EXPECT_NEAR(static_cast<double>(held), static_cast<double>(counting.bytes_read()), 256);  // rotary frequencies
    EXPECT_EQ(outline_model(checkpoint, options)->shape().weight_bytes, held);
  }
}

}  // namespace
}  // namespace heddle
