#include "models/llama_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace heddle {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What every config has, with the members of `changes` on top; those that are "absent" are taken out.
json config_with(const json& changes = json::object()) {
  json config = json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu"})");
  for (const auto& [key, value] : changes.items())
    if (value == "absent")
      config.erase(key);
    else
      config[key] = value;
  return config;
}

LlamaConfig parse(const json& changes = json::object()) {
  const json config = config_with(changes);
  return parse_llama_config({config, "config.json"});
}

std::string error_of(const json& changes) {
  try {
    parse(changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(LlamaConfig, ReadsAllNumbers) {
  const LlamaConfig llama = parse({{"bos_token_id", 128000}, {"eos_token_id", 128001}});
  EXPECT_EQ(llama.num_layers, 16);
  EXPECT_EQ(llama.hidden, 2048);
  EXPECT_EQ(llama.intermediate, 8192);
  EXPECT_EQ(llama.num_heads, 32);
  EXPECT_EQ(llama.num_kv_heads, 8);
  EXPECT_EQ(llama.head_dim, 64);
  EXPECT_EQ(llama.vocab_size, 128256);
  EXPECT_EQ(llama.max_position, 4096);
  EXPECT_EQ(llama.rope.theta, 500000);
  EXPECT_EQ(llama.windows, std::vector<int>(16));
  EXPECT_EQ(llama.rms_norm_eps, 1e-5);
  EXPECT_FALSE(llama.tie_embeddings);
  EXPECT_EQ(llama.bos_id, 128000);
  EXPECT_THAT(llama.eos_ids, ElementsAre(128001));
}

TEST(LlamaConfig, MissingFieldsAreWhatTransformersTakesThemFor) {
  const LlamaConfig llama = parse({{"num_key_value_heads", "absent"},
                                   {"max_position_embeddings", "absent"},
                                   {"rms_norm_eps", "absent"},
                                   {"rope_theta", "absent"},
                                   {"hidden_act", "absent"}});
  EXPECT_EQ(llama.num_kv_heads, 32);
  EXPECT_EQ(llama.max_position, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.tie_embeddings);
  EXPECT_THAT(llama.eos_ids, ElementsAre(2));
  EXPECT_EQ(llama.bos_id, 1);
  EXPECT_EQ(parse({{"num_key_value_heads", nullptr}}).num_kv_heads, 32);
}

TEST(LlamaConfig, HeadDimIsGivenOrDerived) {
  EXPECT_EQ(parse({{"head_dim", 24}}).head_dim, 24);
  EXPECT_EQ(parse({{"head_dim", nullptr}}).head_dim, 64);
  EXPECT_EQ(parse({{"hidden_size", 2050}, {"head_dim", 80}}).head_dim, 80);  // then hidden need not be divisible
}

TEST(LlamaConfig, ReadsOneOrManyEosIds) {
  EXPECT_THAT(parse({{"eos_token_id", {2, 7}}}).eos_ids, ElementsAre(2, 7));
  EXPECT_THAT(parse({{"eos_token_id", nullptr}}).eos_ids, IsEmpty());
}

TEST(LlamaConfig, ReadsBiases) {
  const LlamaConfig none = parse();
  EXPECT_FALSE(none.qkv_bias || none.output_bias || none.mlp_bias || none.qk_norm);
  const LlamaConfig attention = parse({{"attention_bias", true}});
  EXPECT_TRUE(attention.qkv_bias && attention.output_bias && !attention.mlp_bias);
  const LlamaConfig mlp = parse({{"mlp_bias", true}});
  EXPECT_TRUE(mlp.mlp_bias && !mlp.qkv_bias && !mlp.output_bias);
}

TEST(LlamaConfig, IgnoresWhatChangesNothing) {
  EXPECT_EQ(error_of({{"pretraining_tp", 2},
                      {"attention_bias", false},
                      {"mlp_bias", false},
                      {"attention_dropout", 0.1},
                      {"use_cache", false},
                      {"torch_dtype", "bfloat16"},
                      {"dtype", "bfloat16"},
                      {"sliding_window", nullptr},
                      {"use_sliding_window", false},
                      {"quantization_config", nullptr},
                      {"layer_types", std::vector<std::string>(16, "full_attention")},
                      {"pad_token_id", -1},
                      {"never heard of", {{"a", 1}}}}),
            "");
}

TEST(LlamaConfig, RefusesAbsurdValuesByName) {
  const struct {
    json changes;
    const char* message;
  } cases[] = {
      {{{"num_hidden_layers", "absent"}}, "config.json: the field \"num_hidden_layers\" is missing"},
      {{{"hidden_size", nullptr}}, "config.json: hidden_size: expected a whole number from 1 to 131072, found null"},
      {{{"num_attention_heads", 0}},
       "config.json: num_attention_heads: expected a whole number from 1 to 4096, found 0"},
      {{{"num_key_value_heads", 0}},
       "config.json: num_key_value_heads: expected a whole number from 1 to 4096, found 0"},
      {{{"num_key_value_heads", 5}}, "config.json: num_attention_heads: 32 is not a multiple of num_key_value_heads 5"},
      {{{"num_key_value_heads", 64}},
       "config.json: num_attention_heads: 32 is not a multiple of num_key_value_heads 64"},
      {{{"vocab_size", 1LL << 40}},
       "config.json: vocab_size: expected a whole number from 1 to 16777216, found 1099511627776"},
      {{{"hidden_size", -2048}}, "config.json: hidden_size: expected a whole number from 1 to 131072, found -2048"},
      {{{"hidden_size", 2048.5}}, "config.json: hidden_size: expected a whole number from 1 to 131072, found 2048.5"},
      {{{"hidden_size", "2048"}}, "config.json: hidden_size: expected a whole number from 1 to 131072, found \"2048\""},
      {{{"hidden_size", {2048}}}, "config.json: hidden_size: expected a whole number from 1 to 131072, found an array"},
      {{{"hidden_size", 2049}},
       "config.json: hidden_size: 2049 is not a multiple of num_attention_heads 32, and no head_dim is given"},
      {{{"hidden_size", 131072}},
       "config.json: hidden_size: 131072 over num_attention_heads 32 makes a head_dim of 4096; at most 1024 is "
       "supported"},
      {{{"hidden_size", 96}}, "config.json: hidden_size: a head_dim of 3 is odd; rotary embeddings turn pairs"},
      {{{"head_dim", 63}}, "config.json: head_dim: a head_dim of 63 is odd; rotary embeddings turn pairs"},
      {{{"head_dim", 0}}, "config.json: head_dim: expected a whole number from 1 to 1024, found 0"},
      {{{"head_dim", 2048}}, "config.json: head_dim: expected a whole number from 1 to 1024, found 2048"},
      {{{"num_hidden_layers", 1025}},
       "config.json: num_hidden_layers: expected a whole number from 1 to 1024, found 1025"},
      {{{"intermediate_size", 1 << 21}},
       "config.json: intermediate_size: expected a whole number from 1 to 1048576, found 2097152"},
      {{{"max_position_embeddings", 0}},
       "config.json: max_position_embeddings: expected a whole number from 1 to 16777216, found 0"},
      {{{"rms_norm_eps", 0}}, "config.json: rms_norm_eps: expected a number from 1e-20 to 1, found 0"},
      {{{"rms_norm_eps", -1e-5}}, "config.json: rms_norm_eps: expected a number from 1e-20 to 1, found -1e-05"},
      {{{"rms_norm_eps", "NaN"}}, "config.json: rms_norm_eps: expected a number from 1e-20 to 1, found \"NaN\""},
      {{{"rms_norm_eps", std::nan("")}}, "config.json: rms_norm_eps: expected a number from 1e-20 to 1, found null"},
      {{{"tie_word_embeddings", 1}}, "config.json: tie_word_embeddings: expected true or false, found 1"},
      {{{"eos_token_id", 128256}}, "config.json: eos_token_id: expected a whole number from 0 to 128255, found 128256"},
      {{{"eos_token_id", {1, "x"}}},
       "config.json: eos_token_id[1]: expected a whole number from 0 to 128255, found \"x\""},
      {{{"bos_token_id", -1}}, "config.json: bos_token_id: expected a whole number from 0 to 128255, found -1"},
      {{{"layer_types", "full_attention"}}, "config.json: layer_types: expected an array, found \"full_attention\""},
      {{{"layer_types", {"full_attention"}}},
       "config.json: layer_types: has 1 elements, expected one for each of num_hidden_layers 16"},
      {{{"attention_bias", "yes"}}, "config.json: attention_bias: expected true or false, found \"yes\""},
      {{{"mlp_bias", 1}}, "config.json: mlp_bias: expected true or false, found 1"},
      {{{"architectures", {"GPT2LMHeadModel"}}},
       "config.json: architectures: \"GPT2LMHeadModel\" is not one of the Llama family"},
  };
  for (const auto& c : cases) EXPECT_EQ(error_of(c.changes), c.message);
  const json list = json::array();
  EXPECT_THROW(parse_llama_config({list, "config.json"}), InputError);
}

TEST(LlamaConfig, RefusesWhatIsNotSupportedByName) {
  const struct {
    json changes;
    const char* message;
  } cases[] = {
      {{{"hidden_act", "gelu"}}, "config.json: hidden_act: \"gelu\" is not supported yet, only \"silu\" and \"swish\""},
      {{{"sliding_window", 4096}}, "config.json: sliding_window: 4096 is not supported yet, only none"},
      {{{"quantization_config", {{"quant_method", "fp8"}}}},
       "config.json: quantization_config: quantisation by fp8 is not supported yet. Give the model that was quantised, "
       "in "
       "bfloat16 or float16; the model's card on Hugging Face names it"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}},
       "config.json: layer_types[1]: \"sliding_attention\" is not supported yet, only \"full_attention\""},
  };
  for (const auto& c : cases) EXPECT_EQ(error_of(c.changes), c.message);
}

TEST(LlamaConfig, ListsAllThatIsNotSupported) {
  const json config = config_with({{"hidden_act", "gelu"}, {"sliding_window", 512}});
  EXPECT_EQ(unsupported_llama_features({config, "config.json"}).size(), 2u);
  const json good = config_with();
  EXPECT_THAT(unsupported_llama_features({good, "config.json"}), IsEmpty());
}

}  // namespace
}  // namespace heddle
