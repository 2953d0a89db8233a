#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_builder.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::filesystem::path golden() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
}

nlohmann::json golden_config() {
  return parse_json(read_file(golden() / "config.json", 1 << 20), "config.json");
}

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// AutoGPTQ and AutoAWQ wrote their settings into a file of their own.
TEST(Registry, QuantisedTensorsAreNamedWhereTheConfigSaysNothing) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", golden_config().dump());
  const std::string header =
      R"({"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  write_file(folder.path() / "model.safetensors", safetensors_file(header, "1234"));
  const Checkpoint checkpoint(folder.path());
  const std::string loading = heddle::message_of<InputError>([&] { load_model(checkpoint, {}); });
  EXPECT_THAT(loading, HasSubstr("tensor \"model.layers.0.mlp.up_proj.qweight\": quantisation by GPTQ or AWQ is not "
                                 "supported yet. Give the model that was quantised"));
  EXPECT_EQ(heddle::message_of<InputError>([&] { check_model(checkpoint); }), loading);
  EXPECT_THAT(unsupported_in(checkpoint), ElementsAre(loading)) << "the dtype follows from it";
}

TEST(Registry, WeightsOfMlxAndFp8AreNamedByWhatTheyAre) {
  const TemporaryFolder folder;
  const auto sentences = [&](const nlohmann::json& changes, const std::string& dtype, const std::string& name) {
    nlohmann::json config = golden_config();
    config.update(changes);
    write_file(folder.path() / "config.json", config.dump());
    const std::string header = fmt::format(R"({{"{}":{{"dtype":"{}","shape":[4],"data_offsets":[0,{}]}}}})", name,
                                           dtype, stored_dtype(dtype)->bits / 2);
    write_file(folder.path() / "model.safetensors",
               safetensors_file(header, std::string(static_cast<std::size_t>(stored_dtype(dtype)->bits / 2), 'x')));
    return unsupported_in(Checkpoint(folder.path()));
  };
  const nlohmann::json mlx{{"group_size", 64}, {"bits", 4}};
  EXPECT_THAT(sentences({{"quantization", mlx}}, "U32", "w.weight"),
              ElementsAre(HasSubstr("config.json: quantization: quantisation by MLX (4 bits) is not supported yet")));
  EXPECT_THAT(sentences({{"quantization", mlx}, {"quantization_config", mlx}}, "U32", "w.weight"),
              ElementsAre(HasSubstr("quantisation by MLX (4 bits)")));
  EXPECT_THAT(sentences(nlohmann::json::object(), "BF16", "w.scales"),
              ElementsAre(HasSubstr("quantisation by MLX is")));
  EXPECT_THAT(sentences(nlohmann::json::object(), "F8_E4M3", "w.weight"),
              ElementsAre(HasSubstr("tensor \"w.weight\": quantisation by fp8 is not supported yet")));
  EXPECT_THAT(sentences(nlohmann::json::object(), "I8", "w.weight"),
              ElementsAre("tensor \"w.weight\" has dtype I8; only F32, F16 and BF16 can be loaded"));
}

TEST(Registry, CheckingFindsWhatLoadingFinds) {
  for (const nlohmann::json& changes : {
           nlohmann::json::object(),
           nlohmann::json{{"intermediate_size", 128}},  // mis-shaped
           nlohmann::json{{"num_hidden_layers", 4}},    // missing
           nlohmann::json{{"num_hidden_layers", 2}},    // extra
           nlohmann::json{{"hidden_size", -1}},
           nlohmann::json{{"architectures", {"GPT2LMHeadModel"}}},
       }) {
    const TemporaryFolder folder;
    std::filesystem::copy(golden(), folder.path(), std::filesystem::copy_options::recursive);
    nlohmann::json config = golden_config();
    config.update(changes);
    write_file(folder.path() / "config.json", config.dump());
    const Checkpoint checkpoint(folder.path());
    const std::string loading = message_of([&] { load_model(checkpoint, {}); });
    EXPECT_EQ(message_of([&] { check_model(checkpoint); }), loading) << changes;
    EXPECT_EQ(loading == "no error", changes.empty()) << loading;
  }
}

// The weights are truncated behind the checkpoint's back: reading them fails.
TEST(Registry, CheckingReadsNoWeights) {
  const TemporaryFolder folder;
  std::filesystem::copy(golden(), folder.path(), std::filesystem::copy_options::recursive);
  const Checkpoint checkpoint(folder.path());
  std::filesystem::resize_file(folder.path() / "model.safetensors", 1);
  EXPECT_NO_THROW(check_model(checkpoint));
  EXPECT_THROW(load_model(checkpoint, {}), Failure);
  EXPECT_THROW(load_model(checkpoint.without_contents(), {}), InvalidArgument);
}

TEST(Registry, SaysWhatIsUnsupported) {
  nlohmann::json config = golden_config();
  EXPECT_THAT(unsupported(JsonField(config, "config.json")), IsEmpty());
  config["hidden_act"] = "gelu";
  EXPECT_THAT(unsupported(JsonField(config, "config.json")), ElementsAre(StartsWith("config.json: hidden_act")));
  config["architectures"] = {"GPT2\nLMHeadModel"};
  EXPECT_THAT(unsupported(JsonField(config, "config.json")),
              ElementsAre(AllOf(HasSubstr("GPT2\\nLMHeadModel"), HasSubstr("LlamaForCausalLM"))));
}

TEST(Registry, DescribesWhatTheArchitectureDerives) {
  nlohmann::json config = golden_config();
  config.erase("head_dim");
  config["hidden_size"] = 96;
  config["num_attention_heads"] = 4;
  EXPECT_EQ(describe_model(JsonField(config, "config.json")).head_dim, 24);
  config["architectures"] = {"Unknown"};
  const ModelDescription unknown = describe_model(JsonField(config, "config.json"));
  EXPECT_EQ(unknown.head_dim, std::nullopt);
  EXPECT_EQ(unknown.hidden, 96);
  config["hidden_size"] = "many";
  EXPECT_EQ(describe_model(JsonField(config, "config.json")).hidden, std::nullopt);
}

}  // namespace
}  // namespace heddle
