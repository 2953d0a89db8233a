// Inconsistent folders: the error names the tensor, what was expected and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "models/llama_runner.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The error of loading the golden folder `name` with fields of its config.json changed.
std::string error_with(const std::string& name, const nlohmann::json& changes) {
  const TemporaryFolder folder;
  std::filesystem::copy(golden_folder(name), folder.path(), std::filesystem::copy_options::recursive);
  nlohmann::json config = parse_json(read_file(folder.path() / "config.json", 1 << 20), "config.json");
  config.update(changes);
  write_file(folder.path() / "config.json", config.dump());
  try {
    load_model(Checkpoint(folder.path()), {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LlamaLoading, AFolderLoadsAsItIs) {
  EXPECT_EQ(error_with("gqa", nlohmann::json::object()), "no error");
}

TEST(LlamaLoading, AMisShapedTensorIsNamedWithBothShapesAndTheReason) {
  EXPECT_THAT(
      error_with("gqa", {{"intermediate_size", 128}}),
      AllOf(HasSubstr("model.safetensors"), HasSubstr("model.layers.0.mlp.gate_proj.weight"), HasSubstr("[112, 96]"),
            HasSubstr("[128, 96]"), HasSubstr("intermediate_size in config.json is 128")));
  EXPECT_THAT(error_with("gqa", {{"num_key_value_heads", 3}}),
              AllOf(HasSubstr("model.layers.0.self_attn.k_proj.weight"), HasSubstr("num_key_value_heads"),
                    HasSubstr("[48, 96]"), HasSubstr("[72, 96]")));
  EXPECT_THAT(error_with("gqa", {{"vocab_size", 330}}), HasSubstr("model.embed_tokens.weight"));
}

TEST(LlamaLoading, AMissingTensorIsNamed) {
  EXPECT_THAT(error_with("gqa", {{"num_hidden_layers", 4}}), HasSubstr("model.layers.3."));
  EXPECT_THAT(error_with("mha-tied", {{"tie_word_embeddings", false}}), HasSubstr("lm_head.weight"));
}

TEST(LlamaLoading, AnExtraTensorIsNamed) {
  EXPECT_THAT(error_with("gqa", {{"num_hidden_layers", 2}}), HasSubstr("model.layers.2."));
}

TEST(LlamaLoading, ATiedModelMayStoreItsOutputMatrixToo) {
  EXPECT_EQ(error_with("gqa", {{"tie_word_embeddings", true}}), "no error");
}

TEST(LlamaLoading, AnUnknownArchitectureIsNamedWithTheKnownOnes) {
  EXPECT_THAT(error_with("gqa", {{"architectures", {"GPT2LMHeadModel"}}}),
              AllOf(HasSubstr("config.json"), HasSubstr("GPT2LMHeadModel"), HasSubstr("LlamaForCausalLM")));
  EXPECT_THAT(error_with("gqa", {{"architectures", nlohmann::json::array()}}), HasSubstr("architectures"));
  EXPECT_THAT(error_with("gqa", {{"architectures", 7}}), HasSubstr("expected an array"));
}

}  // namespace
}  // namespace heddle
