// Differences of Mistral, Qwen2 and Qwen3 from Llama in config.json.
#include "models/llama_architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/llama_config.h"
#include "models/registry.h"

namespace heddle {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Only sizes, as small as possible where a default depends on them; and `changes`.
json config_of(const std::string& architecture, const json& changes = json::object()) {
  json config = {{"architectures", {architecture}}, {"num_hidden_layers", 4}, {"hidden_size", 4096},
                 {"intermediate_size", 8192},       {"vocab_size", 1000},     {"num_attention_heads", 32}};
  config.update(changes);
  return config;
}

LlamaConfig parse(const std::string& architecture, const json& changes = json::object()) {
  const json config = config_of(architecture, changes);
  return parse_llama_config({config, "config.json"});
}

std::string error_of(const std::string& architecture, const json& changes) {
  try {
    parse(architecture, changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kLlama = "LlamaForCausalLM";
constexpr const char* kMistral = "MistralForCausalLM";
constexpr const char* kQwen2 = "Qwen2ForCausalLM";
constexpr const char* kQwen3 = "Qwen3ForCausalLM";

TEST(LlamaArchitecture, EachIsRegistered) {
  for (const LlamaArchitecture& architecture : kLlamaArchitectures)
    EXPECT_THAT(known_architectures(), Contains(architecture.name));
}

// transformers 5.17, configuration_*.py.
TEST(LlamaArchitecture, MissingFieldsAreWhatItsConfigClassTakesThemFor) {
  const LlamaConfig llama = parse(kLlama);
  EXPECT_EQ(llama.num_kv_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.max_position, 2048);
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_EQ(llama.bos_id, 1);
  EXPECT_THAT(llama.eos_ids, ElementsAre(2));

  const LlamaConfig mistral = parse(kMistral);
  EXPECT_EQ(mistral.num_kv_heads, 8);
  EXPECT_EQ(mistral.head_dim, 128);
  EXPECT_EQ(mistral.max_position, 131072);
  EXPECT_THAT(mistral.windows, ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(mistral.eos_ids, ElementsAre(2));

  const LlamaConfig qwen2 = parse(kQwen2);
  EXPECT_EQ(qwen2.num_kv_heads, 32);
  EXPECT_EQ(qwen2.max_position, 32768);
  EXPECT_THAT(qwen2.windows, Each(0));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias || qwen2.qk_norm);
  EXPECT_THAT(qwen2.eos_ids, IsEmpty());
  EXPECT_EQ(qwen2.bos_id, std::nullopt);

  const LlamaConfig qwen3 = parse(kQwen3, {{"hidden_size", 2048}});
  EXPECT_EQ(qwen3.head_dim, 128);  // not 2048 / 32
  EXPECT_EQ(qwen3.num_kv_heads, 32);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias || qwen3.output_bias);

  for (const LlamaConfig& config : {llama, mistral, qwen2, qwen3}) {
    EXPECT_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.rope.theta, 10000);
    EXPECT_FALSE(config.tie_embeddings || config.mlp_bias);
  }
}

TEST(LlamaArchitecture, NullIsNotMissing) {
  EXPECT_EQ(parse(kMistral, {{"num_key_value_heads", nullptr}}).num_kv_heads, 32);
  EXPECT_THAT(parse(kMistral, {{"sliding_window", nullptr}}).windows, Each(0));
  EXPECT_THAT(parse(kMistral, {{"eos_token_id", nullptr}}).eos_ids, IsEmpty());
  EXPECT_THAT(
      parse(kQwen2, {{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}}).windows,
      Each(0));
}

TEST(LlamaArchitecture, BiasesAreThoseThatTheArchitectureReads) {
  EXPECT_FALSE(parse(kMistral, {{"attention_bias", true}}).qkv_bias);
  EXPECT_TRUE(parse(kQwen2, {{"attention_bias", false}}).qkv_bias);
  EXPECT_FALSE(parse(kQwen2, {{"attention_bias", true}}).output_bias);
  const LlamaConfig qwen3 = parse(kQwen3, {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias && !qwen3.mlp_bias);
}

TEST(LlamaArchitecture, WindowsAreOfTheLayersThatHaveThem) {
  EXPECT_THAT(parse(kMistral, {{"sliding_window", 7}}).windows, ElementsAre(7, 7, 7, 7));
  const json used = {{"use_sliding_window", true}, {"sliding_window", 9}};
  const auto qwen = [&](const char* architecture, const json& changes) {
    json all = used;
    all.update(changes);
    return parse(architecture, all).windows;
  };
  for (const char* architecture : {kQwen2, kQwen3}) {
    EXPECT_THAT(qwen(architecture, json::object()), ElementsAre(0, 0, 0, 0));  // max_window_layers is 28
    EXPECT_THAT(qwen(architecture, {{"max_window_layers", 3}}), ElementsAre(0, 0, 0, 9));
    EXPECT_THAT(qwen(architecture, {{"max_window_layers", 0}}), ElementsAre(9, 9, 9, 9));
    EXPECT_THAT(qwen(architecture, {{"max_window_layers", 1'000'000}}), ElementsAre(0, 0, 0, 0));
    const std::vector<std::string> types = {"sliding_attention", "full_attention", "sliding_attention",
                                            "full_attention"};
    EXPECT_THAT(qwen(architecture, {{"layer_types", types}, {"max_window_layers", 0}}), ElementsAre(9, 0, 9, 0));
    EXPECT_THAT(qwen(architecture, {{"use_sliding_window", false}, {"max_window_layers", 0}}), Each(0));
    EXPECT_THAT(parse(architecture, {{"use_sliding_window", true}, {"max_window_layers", 2}}).windows,
                ElementsAre(0, 0, 4096, 4096));
  }
}

TEST(LlamaArchitecture, BadWindowsAreNamed) {
  const std::vector<std::string> sliding(4, "sliding_attention");
  const struct {
    const char* architecture;
    json changes;
    const char* message;
  } cases[] = {
      {kMistral,
       {{"sliding_window", 0}},
       "config.json: sliding_window: expected a whole number from 1 to 2147483647, found 0"},
      {kMistral,
       {{"sliding_window", -4096}},
       "config.json: sliding_window: expected a whole number from 1 to 2147483647, found -4096"},
      {kMistral,
       {{"sliding_window", "4096"}},
       "config.json: sliding_window: expected a whole number from 1 to 2147483647, found \"4096\""},
      {kMistral,
       {{"sliding_window", 1.5}},
       "config.json: sliding_window: expected a whole number from 1 to 2147483647, found 1.5"},
      {kMistral,
       {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}},
       "config.json: layer_types[1]: \"full_attention\" is not supported yet, only \"sliding_attention\": "
       "the sliding_window of this architecture is every layer's"},
      {kMistral,
       {{"layer_types", sliding}, {"sliding_window", nullptr}},
       "config.json: layer_types[0]: \"sliding_attention\" is not supported yet, only \"full_attention\""},
      {kQwen2, {{"use_sliding_window", 1}}, "config.json: use_sliding_window: expected true or false, found 1"},
      {kQwen2,
       {{"use_sliding_window", true}, {"sliding_window", 0}},
       "config.json: sliding_window: expected a whole number from 1 to 2147483647, found 0"},
      {kQwen2,
       {{"use_sliding_window", true}, {"max_window_layers", -1}},
       "config.json: max_window_layers: expected a whole number from 0 to 2147483647, found -1"},
      {kQwen2,
       {{"layer_types", {"full_attention"}}},
       "config.json: layer_types: has 1 elements, expected one for each of num_hidden_layers 4"},
      {kQwen2,
       {{"layer_types", sliding}},
       "config.json: layer_types[0]: is \"sliding_attention\", but use_sliding_window and sliding_window give no "
       "window"},
      {kQwen3,
       {{"layer_types", {"full_attention", "linear_attention", "full_attention", "full_attention"}}},
       "config.json: layer_types[1]: \"linear_attention\" is not supported yet, only \"full_attention\" and "
       "\"sliding_attention\""},
      {kQwen3,
       {{"layer_types", {1, 2, 3, 4}}},
       "config.json: layer_types[0]: 1 is not supported yet, only \"full_attention\" and \"sliding_attention\""},
      {kQwen3,
       {{"num_attention_heads", 20}},
       "config.json: num_attention_heads: 20 is not a multiple of num_key_value_heads 32"},
  };
  for (const auto& c : cases) EXPECT_EQ(error_of(c.architecture, c.changes), c.message);
}

// As published by the model's authors, in the relevant fields.
struct Published {
  const char* name;
  const char* config;
  std::int64_t context;
  int kv_heads, head_dim, windowed_layers;
  bool tied;
};

const Published kPublished[] = {
    {"Llama-2-7b-chat-hf", R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
      "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.32.0.dev0",
      "use_cache": true, "vocab_size": 32000})",
     4096, 32, 128, 0, false},
    {"CodeLlama-34b", R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 22016, "max_position_embeddings": 16384,
      "model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 48, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "vocab_size": 32000})",
     16384, 8, 128, 0, false},
    {"Llama-3.2-1B-Instruct", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
      "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
      "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "vocab_size": 128256})",
     131072, 8, 64, 0, true},
    {"Mistral-7B-v0.1", R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "vocab_size": 32000})",
     32768, 8, 128, 32, false},
    {"Mistral-Nemo", R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 14336,
      "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 131072})",
     131072, 8, 128, 0, false},
    {"Qwen2.5-7B-Instruct", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584,
      "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2",
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "use_sliding_window": false, "vocab_size": 152064})",
     32768, 4, 128, 0, false},
    {"Qwen3-8B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})",
     40960, 8, 128, 0, false},
};

TEST(LlamaArchitecture, PublishedConfigsAreSupported) {
  for (const Published& published : kPublished) {
    SCOPED_TRACE(published.name);
    const json config = json::parse(published.config);
    EXPECT_THAT(unsupported({config, "config.json"}), IsEmpty());
    const LlamaConfig llama = parse_llama_config({config, "config.json"});
    EXPECT_EQ(llama.max_position, published.context);
    EXPECT_EQ(llama.num_kv_heads, published.kv_heads);
    EXPECT_EQ(llama.head_dim, published.head_dim);
    EXPECT_EQ(llama.num_layers - std::ranges::count(llama.windows, 0), published.windowed_layers);
    EXPECT_EQ(llama.tie_embeddings, published.tied);
  }
}

// As transformers, which looks at nothing else.
TEST(LlamaArchitecture, IsThatOfTheModelTypeWhereNoneIsGiven) {
  json config = config_of(kLlama, {{"model_type", "qwen3"}});
  config.erase("architectures");
  EXPECT_TRUE(parse_llama_config({config, "config.json"}).qk_norm);
  config["architectures"] = nullptr;
  EXPECT_EQ(architecture_of({config, "config.json"}), kQwen3);
  config["model_type"] = "gpt2";
  EXPECT_THROW(architecture_of({config, "config.json"}), InputError);
  config["model_type"] = 3;
  EXPECT_THROW(architecture_of({config, "config.json"}), InputError);
}

}  // namespace
}  // namespace heddle
