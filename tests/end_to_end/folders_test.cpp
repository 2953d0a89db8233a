// Folders that are something else than a model that runs, as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Folders : public testing::Test {
 protected:
  Folders() {
    std::filesystem::copy(demo_model(), folder_.path() / "model", std::filesystem::copy_options::recursive);
    ::setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
  }
  ~Folders() override { ::unsetenv("HF_HUB_CACHE"); }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / "model" / name; }
  std::string model() const { return (folder_.path() / "model").string(); }
  void change_config(const json& changes) const {
    json config = json::parse(read_file(file("config.json"), 1 << 20));
    config.update(changes);
    write_file(file("config.json"), config.dump());
  }
  static ProgramResult generate(const std::string& model) {
    return run_heddle({"generate", model, "-p", "137 + 254 =", "--temperature", "0", "--max-tokens", "4"});
  }
  // Replaces the last numbers of the weights by NaN.
  void damage() const {
    std::string weights = read_file(file("model.safetensors"), std::size_t{1} << 30);
    weights.replace(weights.size() - 4096, 4096, std::string(4096, '\xff'));
    write_file(file("model.safetensors"), weights);
  }

  TemporaryFolder folder_;
};

TEST_F(Folders, NanWeightsAreBadInputAndTheTensorIsNamed) {
  damage();
  const std::vector<std::vector<std::string>> commands{
      {"generate", model(), "-p", "137 + 254 ="}, {"score", model(), "--text", "137 + 254 = 391"}, {"chat", model()}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = run_heddle(command, {.stdin_text = "What is 137 plus 254?\n"});
    EXPECT_EQ(result.status, 2) << command[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr("the model's logits are not finite at position"),
                                  HasSubstr("model.safetensors: tensor \"model."), HasSubstr("is damaged"),
                                  HasSubstr("Download the file again")))
        << command[0];
  }
}

TEST_F(Folders, InspectReadsWeightsWhereAskedTo) {
  EXPECT_THAT(run_heddle({"inspect", model()}).out, HasSubstr("weights       not read: --check-weights"));
  EXPECT_EQ(run_heddle({"inspect", model(), "--check-weights"}).status, 0);
  damage();
  const ProgramResult result = run_heddle({"inspect", model(), "--check-weights", "--json"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(json::parse(result.out).at("damaged").dump(), HasSubstr("is damaged: "));
  EXPECT_THAT(result.err, HasSubstr("2 of its tensors have NaN or infinities"));
}

TEST_F(Folders, AModelIsFoundInTheCacheOfHuggingFaceByItsName) {
  const auto repository = folder_.path() / "hub/models--heddle--demo";
  std::filesystem::create_directories(repository / "snapshots");
  std::filesystem::rename(model(), repository / "snapshots/0123abc");
  EXPECT_THAT(generate("heddle/demo").err, HasSubstr("refs/main is missing"));
  std::filesystem::create_directory(repository / "refs");
  write_file(repository / "refs/main", "0123abc\n");
  for (const std::string& name : {std::string("heddle/demo"), repository.string(), repository.string() + "/",
                                  (repository / "snapshots").string(), (repository / "snapshots/").string()}) {
    EXPECT_THAT(generate(name).out, HasSubstr("391")) << name;
    EXPECT_EQ(run_heddle({"tokenize", name, "--text", "1"}).status, 0);
    EXPECT_EQ(
        run_heddle({"template", name, "--file", "-"}, {.stdin_text = R"([{"role":"user","content":"x"}])"}).status, 0);
    EXPECT_EQ(run_heddle({"inspect", name}).status, 0);
  }
  const ProgramResult none = generate("heddle/other");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("Download it: hf download heddle/other"));
}

TEST_F(Folders, WhatIsNoModelIsNamedByEveryCommand) {
  std::filesystem::remove(file("config.json"));
  std::filesystem::remove(file("tokenizer.json"));
  std::filesystem::remove(file("model.safetensors"));
  write_file(file("x.Q4_K_M.gguf"), "GGUF");
  for (const std::string& name : {model(), file("x.Q4_K_M.gguf").string()})
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"generate", name, "-p", "x"}, {"chat", name}, {"inspect", name}, {"tokenize", name, "--text", "x"}}) {
      const ProgramResult result = run_heddle(command);
      EXPECT_EQ(result.status, 2);
      EXPECT_THAT(result.err, AllOf(HasSubstr("x.Q4_K_M.gguf: is a GGUF file"), HasSubstr("original model")))
          << command[0];
    }
  const ProgramResult inspected = run_heddle({"inspect", model(), "--json"});
  EXPECT_EQ(inspected.status, 2);
  EXPECT_THAT(json::parse(inspected.out).at("unsupported").dump(), HasSubstr("is a GGUF file"));
}

TEST_F(Folders, WeightsWithoutAConfigAreAnIncompleteDownload) {
  std::filesystem::remove(file("config.json"));
  EXPECT_THAT(generate(model()).err,
              HasSubstr(model() + ": holds weights, but no config.json. Is the download complete?"));
}

TEST_F(Folders, ADamagedTensorIsNamedOnceInABatch) {
  damage();
  const ProgramResult result = run_heddle({"generate", model(), "--prompts-file", "-", "--json", "--quiet"},
                                          {.stdin_text = "{\"prompt\": \"a\"}\n{\"prompt\": \"b c\"}\n"});
  EXPECT_EQ(result.status, 2);
  const std::size_t first = result.out.find("is damaged");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(result.out.find("is damaged", first + 1), std::string::npos);
  const ProgramResult samples = run_heddle({"generate", model(), "-p", "137 + 254 =", "-n", "3", "--temperature", "1"});
  const std::size_t only = samples.err.find("is damaged");
  EXPECT_NE(only, std::string::npos);
  EXPECT_EQ(samples.err.find("is damaged", only + 1), std::string::npos) << "one error, said once";
}

TEST_F(Folders, AnAdapterBesideTheWeightsIsWarnedOfAndInspected) {
  write_file(file("adapter_config.json"), R"({"peft_type": "LORA", "base_model_name_or_path": "org/base"})");
  const ProgramResult result = generate(model());
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("heddle: warning: "), HasSubstr("a LoRA adapter of org/base"),
                                HasSubstr("is not applied")));
  const ProgramResult inspected = run_heddle({"inspect", model(), "--json"});
  EXPECT_EQ(inspected.status, 0) << "the model runs";
  EXPECT_THAT(json::parse(inspected.out)["warnings"].dump(), HasSubstr("LoRA adapter of org/base"));
  EXPECT_THAT(run_heddle({"inspect", model()}).out, HasSubstr("warning       " + file("adapter_config.json").string()));
}

TEST_F(Folders, AQuantisationIsNamedByItsMethodAndInspectExitsWithTwo) {
  const std::pair<json, const char*> cases[] = {
      {{{"quant_method", "gptq"}, {"bits", 4}}, "quantisation by GPTQ (4 bits) is not supported yet"},
      {{{"quant_method", "awq"}, {"bits", 4}}, "quantisation by AWQ (4 bits)"},
      {{{"quant_method", "fp8"}}, "quantisation by fp8 is"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "quantisation by bitsandbytes (4 bits)"},
      {{{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}},
       "quantisation by compressed-tensors (pack-quantized)"},
      {{{"quant_method", "new\n"}}, "quantisation by new\\n is"},
      {{{"bits", 4}}, "quantisation by an unnamed method (4 bits)"},
  };
  for (const auto& [config, message] : cases) {
    change_config({{"quantization_config", config}});
    const ProgramResult result = generate(model());
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(message), HasSubstr("Give the model that was quantised"))) << result.err;
    for (const bool as_json : {false, true}) {
      const ProgramResult inspected =
          as_json ? run_heddle({"inspect", model(), "--json"}) : run_heddle({"inspect", model()});
      EXPECT_EQ(inspected.status, 2);
      EXPECT_THAT(inspected.err, HasSubstr("one thing of it is unsupported, so Heddle cannot run all of it"));
      if (as_json) {
        EXPECT_EQ(json::parse(inspected.out).at("unsupported").size(), 1u);
      }
    }
  }
}

TEST_F(Folders, InspectSaysWhatARunWillDo) {
  write_file(file("generation_config.json"),
             R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]})");
  const json report = json::parse(run_heddle({"inspect", model(), "--json"}).out);
  EXPECT_EQ(report["windows"].size(), report["layers"].get<std::size_t>());
  EXPECT_EQ(report["rope"],
            (json{{"theta", 10000.0}, {"type", "default"}, {"factor", nullptr}, {"original_context", nullptr}}));
  EXPECT_TRUE(report["tied_embeddings"].is_boolean());
  EXPECT_THAT(report["chat_templates"], ElementsAre("default"));
  EXPECT_EQ(report["eos_ids"], (json{1, 2}));
  EXPECT_EQ(report["generation"]["temperature"], 0.6);
  EXPECT_EQ(report["generation"]["top_p"], 0.9);
  for (const char* device : {"CPU", "GPU"}) {
    const auto need = std::ranges::find(report["memory"], device, [](const json& entry) { return entry["device"]; });
    ASSERT_NE(need, report["memory"].end()) << device;
    EXPECT_EQ((*need)["context"], 512);
    EXPECT_EQ((*need)["bytes"].get<double>(), (*need)["weights"].get<double>() + (*need)["kv_cache"].get<double>() +
                                                  (*need)["step"].get<double>() + (*need)["other"].get<double>());
    EXPECT_GT((*need)["kv_cache"].get<double>(), 0);
  }
  const std::string text = run_heddle({"inspect", model()}).out;
  for (const char* line : {"window        none\n", "rope          theta 10000, no scaling\n", "template      default\n",
                           "EOS ids       1, 2\n", "generation    temperature 0.6, top_p 0.9\n",
                           "memory        CPU, 512 tokens: ", "unsupported   nothing\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST_F(Folders, InspectKnowsWindowsAndRopeScaling) {
  change_config({{"architectures", {"MistralForCausalLM"}},
                 {"sliding_window", 256},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  const std::string text = run_heddle({"inspect", model()}).out;
  EXPECT_THAT(text, HasSubstr("window        256 in all layers\n"));
  EXPECT_THAT(text, HasSubstr("linear scaling by 2\n"));
  const std::string qwen = run_heddle({"inspect", "synth:llama-3.2-1b"}).out;
  EXPECT_THAT(qwen, HasSubstr("llama3 scaling by 32 from 8192 positions"));
  EXPECT_THAT(qwen, HasSubstr("embeddings    tied"));
  EXPECT_THAT(qwen, HasSubstr("GPU, 131072 tokens: "));
}

TEST_F(Folders, AModelWithoutATemplateIsSupportedAndABrokenTemplateIsNot) {
  write_file(file("tokenizer_config.json"), R"({"bos_token": "<|begin|>", "eos_token": "<|end|>"})");
  const ProgramResult without = run_heddle({"inspect", model()});
  EXPECT_EQ(without.status, 0);
  EXPECT_THAT(without.out, HasSubstr("template      none: heddle chat needs --chat-template\n"));
  write_file(file("chat_template.jinja"), "{% if %}");
  const ProgramResult broken = run_heddle({"inspect", model()});
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.out, AllOf(HasSubstr("chat_template.jinja"), HasSubstr("template      none that can be used")));
}

}  // namespace
}  // namespace heddle
