// Each architecture of the family, and each setting of its config.json, compared with transformers.
#include "models/llama_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gpu_here.h"
#include "models/llama_runner.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows = LlamaFamily::Rows;

struct Way {
  std::vector<std::size_t> chunks;  // the last is repeated to the end
  LlamaRunner::Options options;
};

class LlamaFamilyTest : public testing::Test {
 protected:
  // The logits that the goldens hold, computed in some way.
  Rows run(const nlohmann::json& a_case, const Way& way) const {
    const TemporaryFolder folder;
    family_.write(a_case, folder.path());
    LlamaRunner runner(folder.path(), way.options);
    auto sequence = runner.sequence();
    const std::vector<std::int32_t> tokens = family_.tokens();
    Rows all;
    for (std::size_t start = 0, chunk = 0; start < tokens.size(); ++chunk) {
      const std::size_t length = std::min(way.chunks[std::min(chunk, way.chunks.size() - 1)], tokens.size() - start);
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(start);
      for (auto& row : runner.step({{&sequence, {first, first + static_cast<std::ptrdiff_t>(length)}}}))
        all.push_back(std::move(row));
      start += length;
    }
    Rows kept;
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

  std::string error_of(const nlohmann::json& config, const std::vector<std::string>& optional) const {
    const TemporaryFolder folder;
    family_.write(config, optional, folder.path());
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

  const LlamaFamily family_;
};

// Float32 rounding in another order stays well below this.
constexpr double kBound = 1e-4;

TEST_F(LlamaFamilyTest, EveryCaseAgreesInChunks) {
  for (const auto& c : family_.cases())
    EXPECT_LE(largest_error(c, run(c, {{61, 64, 1, 40}, {.threads = 2}})), kBound) << c["name"] << ": " << c["why"];
}

TEST_F(LlamaFamilyTest, EveryCaseAgreesOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  for (const auto& c : family_.cases())
    EXPECT_LE(largest_error(c, run(c, {{61, 64, 1, 40}, {.page_size = 8, .device = kFirstGpu}})), kBound)
        << c["name"] << ": " << c["why"];
}

TEST_F(LlamaFamilyTest, NoChunkingChangesABit) {
  for (const char* name : {"llama-yarn-mscale", "mistral-window", "qwen2-layer-types", "qwen3-v5"}) {
    const auto& c = family_.find(name);
    const Rows expected = run(c, {{64}, {}});
    EXPECT_EQ(run(c, {{1}, {.threads = 2}}), expected) << name;
    EXPECT_EQ(run(c, {{50, 7, 33}, {.threads = 3, .page_size = 7}}), expected) << name;
  }
}

TEST_F(LlamaFamilyTest, Transformers4And5WriteTheSameModel) {
  for (const char* name : {"llama-3.1", "llama-yarn"})
    EXPECT_EQ(run(family_.find(name), {{64}, {}}), run(family_.find(std::string(name) + "-v5"), {{64}, {}})) << name;
}

// Rounding weights and cache to 2 bytes costs little beside what leaving out a bias or a norm would (above 2, see the
// maker).
TEST_F(LlamaFamilyTest, ConversionsKeepBiasesAndNorms) {
  for (const char* name : {"llama-biases", "qwen2", "qwen3", "qwen3-v5"}) {
    const auto& c = family_.find(name);
    EXPECT_LE(largest_error(c, run(c, {{64}, {.dtype = DType::float16}})), 0.03) << name;
    EXPECT_LE(largest_error(c, run(c, {{64}, {.dtype = DType::bfloat16}})), 0.3) << name;
  }
}

TEST_F(LlamaFamilyTest, MissingBiasesAndNormsAreNamed) {
  const auto config = [&](const char* name) { return family_.find(name)["config"]; };
  EXPECT_THAT(error_of(config("qwen2"), {}), HasSubstr("tensor \"model.layers.0.self_attn.q_proj.bias\" is missing"));
  EXPECT_THAT(error_of(config("qwen2"), {"q_proj.bias", "v_proj.bias"}),
              HasSubstr("tensor \"model.layers.0.self_attn.k_proj.bias\" is missing"));
  EXPECT_THAT(error_of(config("qwen3"), {"q_norm.weight"}),
              HasSubstr("tensor \"model.layers.0.self_attn.k_norm.weight\" is missing"));
  EXPECT_THAT(error_of(config("llama-biases"), {"q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"}),
              HasSubstr("tensor \"model.layers.0.mlp.gate_proj.bias\" is missing"));
}

TEST_F(LlamaFamilyTest, BiasesAndNormsOfAnotherModelAreNamed) {
  const auto config = [&](const char* name) { return family_.find(name)["config"]; };
  EXPECT_THAT(error_of(config("llama-2"), {"q_proj.bias"}),
              AllOf(HasSubstr("model.layers.0.self_attn.q_proj.bias"), HasSubstr("belongs to no part")));
  EXPECT_THAT(error_of(config("mistral-window"), {"q_norm.weight"}), HasSubstr("belongs to no part"));
  auto wider = config("qwen3");
  wider["num_attention_heads"] = 8;
  wider["num_key_value_heads"] = 4;
  wider["head_dim"] = 16;  // the same projections, cut otherwise
  EXPECT_THAT(error_of(wider, {"q_norm.weight", "k_norm.weight"}),
              AllOf(HasSubstr("q_norm.weight"), HasSubstr("[32]"), HasSubstr("[16]"), HasSubstr("head_dim is 16")));
}

}  // namespace
}  // namespace heddle
