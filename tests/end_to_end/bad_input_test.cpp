// Every error is one clear line on standard error, with nothing on standard output and exit status 2 (1 for failures).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A copy of the demo model whose files a test corrupts.
class SpoiledModel : public testing::Test {
 protected:
  SpoiledModel() {
    std::filesystem::copy(demo_model(), folder_.path() / "model", std::filesystem::copy_options::recursive);
  }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / "model" / name; }
  std::string read(const std::string& name) const { return read_file(file(name), std::size_t{1} << 30); }

  void change_config(const json& changes) {
    json config = json::parse(read("config.json"));
    config.update(changes);
    write_file(file("config.json"), config.dump());
  }

  void expect_error(const std::string& message, std::vector<std::string> more = {}, int status = 2) {
    std::vector<std::string> arguments{"generate",     "--model", (folder_.path() / "model").string(), "--prompt", "x",
                                       "--max-tokens", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_error_of(arguments, message, status);
  }

  static void expect_error_of(const std::vector<std::string>& arguments, const std::string& message, int status = 2) {
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, testing::StartsWith("heddle: error: "));
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }

  TemporaryFolder folder_;
};

// Independent of the machine: none has a hundred GPUs, and one without any reports what it lacks.
TEST_F(SpoiledModel, Devices) {
  expect_error("--device: is \"gpu\", expected auto, cpu, cuda or cuda:N", {"--device", "gpu"});
  expect_error("--device: is \"cuda:\"", {"--device", "cuda:"});
  const ProgramResult result =
      run_heddle({"generate", "--model", (folder_.path() / "model").string(), "--prompt", "x", "--device", "cuda:99"});
  EXPECT_TRUE(result.status == 1 || result.status == 2) << result.status;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, testing::StartsWith("heddle: error: --device cuda:99: "));
}

TEST_F(SpoiledModel, Folders) {
  expect_error_of({"generate", "--model", "/nonexistent", "--prompt", "x"}, "/nonexistent");
  expect_error_of({"generate", "--model", "/dev/null", "--prompt", "x"}, "/dev/null");
  std::filesystem::remove(file("model.safetensors"));
  expect_error("model.safetensors");
  std::filesystem::remove(file("config.json"));
  expect_error("config.json");
  std::filesystem::remove(file("tokenizer.json"));
  expect_error("config.json");
  expect_error_of({"tokenize", "--model", (folder_.path() / "model").string(), "--text", "x"},
                  "tokenizer.json: is missing");
}

TEST_F(SpoiledModel, TruncatedWeights) {
  const std::string whole = read("model.safetensors");
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{1000}, whole.size() - 1}) {
    write_file(file("model.safetensors"), whole.substr(0, size));
    expect_error("model.safetensors");
  }
  write_file(file("model.safetensors"), whole + "x");
  expect_error("model.safetensors");
}

TEST_F(SpoiledModel, LyingSafetensorsHeaders) {
  const std::string whole = read("model.safetensors");
  std::string huge = whole;
  std::fill_n(huge.begin(), 7, '\xff');
  write_file(file("model.safetensors"), huge);
  expect_error("model.safetensors");
  std::string renamed = whole;
  renamed.replace(renamed.find("model.norm.weight"), 17, "model.none.weight");
  write_file(file("model.safetensors"), renamed);
  expect_error("model.norm.weight");
}

TEST_F(SpoiledModel, AbsurdConfigs) {
  const std::pair<json, const char*> cases[] = {
      {{{"num_attention_heads", 0}}, "num_attention_heads"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"vocab_size", std::int64_t{1} << 40}}, "vocab_size"},
      {{{"vocab_size", -5}}, "vocab_size"},
      {{{"hidden_size", "256"}}, "hidden_size"},
      {{{"hidden_size", 255}}, "model.embed_tokens.weight"},
      {{{"rms_norm_eps", 0}}, "rms_norm_eps"},
      {{{"rms_norm_eps", -1e-5}}, "rms_norm_eps"},
      {{{"rms_norm_eps", json::array()}}, "rms_norm_eps"},
      {{{"num_hidden_layers", 1e18}}, "num_hidden_layers"},
      {{{"intermediate_size", 0}}, "intermediate_size"},
      {{{"max_position_embeddings", -1}}, "max_position_embeddings"},
      {{{"head_dim", 31}}, "head_dim"},
      {{{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 2}}}}, "longrope"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"architectures", {"MambaForCausalLM"}}}, "MambaForCausalLM"},
      {{{"architectures", nullptr}, {"model_type", nullptr}}, "architectures"},
      {{{"quantization_config", {{"bits", 4}}}}, "quantization_config"},
  };
  const std::string original = read("config.json");
  for (const auto& [changes, message] : cases) {
    write_file(file("config.json"), original);
    change_config(changes);
    expect_error(message);
  }
  write_file(file("config.json"), R"({"rms_norm_eps": NaN})");
  expect_error("config.json");
  write_file(file("config.json"), std::string(100'000, '['));
  expect_error("config.json");
  write_file(file("config.json"), "[]");
  expect_error("config.json");
}

TEST_F(SpoiledModel, Tokenizers) {
  const json original = json::parse(read("tokenizer.json"));
  json changed = original;
  changed["model"].erase("merges");
  write_file(file("tokenizer.json"), changed.dump());
  expect_error("merges");
  changed = original;
  changed["model"]["vocab"]["x"] = "seven";
  write_file(file("tokenizer.json"), changed.dump());
  expect_error("vocab");
  changed = original;
  changed["model"]["type"] = "Unigram";
  write_file(file("tokenizer.json"), changed.dump());
  expect_error("Unigram");
  write_file(file("tokenizer.json"), std::string(100'000, '['));
  expect_error("tokenizer.json");
  write_file(file("tokenizer.json"), "null");
  expect_error("tokenizer.json");
}

TEST_F(SpoiledModel, Prompts) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word ";
  expect_error_of({"generate", "--model", demo_model().string(), "--prompt", text}, "context is 512");
  expect_error_of({"generate", "--model", demo_model().string(), "--prompt", "\xff\xfe"}, "UTF-8");
  expect_error("stop string", {"--stop", ""});
  expect_error("top_p", {"--top-p", "0"});
  expect_error_of({"generate", "--model", demo_model().string(), "--prompt", "x", "--max-tokens", "0"},
                  "--max-tokens: is \"0\", expected a whole number of at least 1");
  expect_error("--logprobs is 100000000, the model's vocabulary is 1280", {"--json", "--logprobs", "100000000"});
}

// A file without a right line; generate_batch_test.cpp has those with some.
TEST_F(SpoiledModel, PromptsFiles) {
  const auto path = folder_.path() / "prompts.jsonl";
  const auto expect = [&](const std::string& text, const std::string& message) {
    write_file(path, text);
    expect_error_of({"generate", "--model", demo_model().string(), "--prompts-file", path.string()}, message);
  };
  std::string long_prompt;
  for (int i = 0; i < 3000; ++i) long_prompt += "word ";
  expect("{\"prompt\": 7}\n", "prompts.jsonl:1: prompt: expected a string");
  expect("\n{\"prompt\": \"x\"\n", "prompts.jsonl:2: is not valid JSON");
  expect("[1]\n", "prompts.jsonl:1: expected an object");
  expect("{\"prompt\": \"" + long_prompt + "\"}\n", "prompts.jsonl:1: the prompt has");
  expect("", "holds no prompts");
  expect_error_of({"generate", "--model", demo_model().string(), "--prompts-file", "/nonexistent"}, "/nonexistent");
  expect_error_of({"generate", "--model", demo_model().string(), "--prompts-file", folder_.path().string()},
                  "is a folder, expected a file");
}

TEST_F(SpoiledModel, UnwritableOutput) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"generate", "--model", demo_model().string(), "--prompt", "1 + 1 ="},
                                             {"tokenize", "--model", demo_model().string(), "--text", "x"},
                                             {"inspect", demo_model().string()},
                                             {"doctor"}}) {
    const ProgramResult result = run_heddle(arguments, {.stdout_file = "/dev/full"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("standard output: cannot write: No space left on device"));
  }
}

}  // namespace
}  // namespace heddle
