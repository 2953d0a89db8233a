// --tp and --cp: one model on several ranks, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "end_to_end/program.h"
#include "gpu_here.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using Arguments = std::vector<std::string>;

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

Arguments extended(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string stdout_of(const Arguments& arguments, const std::string& typed = {}) {
  const ProgramResult result = run_heddle(arguments, {.stdin_text = typed});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

TEST(Ranks, TextsAreThoseOfOneRank) {
  const std::string model = demo_model().string();
  const Arguments commands[] = {
      {"generate", model, "--prompt", "137 + 254 =", "--temperature", "0", "--device", "cpu"},
      {"generate", model, "--prompt", "sort: 9 4 7 ->", "-n", "3", "--seed", "7", "--temperature", "0.9", "--top-k",
       "20", "--device", "cpu"},
  };
  for (const Arguments& command : commands) {
    const std::string alone = stdout_of(command);
    for (const char* ranks : {"2", "3", "4"}) EXPECT_EQ(stdout_of(extended(command, {"--tp", ranks})), alone) << ranks;
  }
  const Arguments chat{"chat", model, "--temperature", "0", "--device", "cpu"};
  const std::string question = "What is 137 plus 254?\nAnd 12 plus 30?\n";
  EXPECT_EQ(stdout_of(extended(chat, {"--tp", "2"}), question), stdout_of(chat, question));
}

// Keys and values divided by position, alone and with divided weights.
TEST(Ranks, DividedContextsGiveTheTextsOfOneRank) {
  const std::string model = demo_model().string();
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "12 + 30 = 42\n";  // pages of several ranks
  const Arguments commands[] = {
      {"generate", model, "--prompt", "137 + 254 =", "--temperature", "0", "--device", "cpu"},
      {"generate", model, "--prompt", prompt + "137 + 254 =", "--temperature", "0", "--device", "cpu"},
      {"generate", model, "--prompt", "sort: 9 4 7 ->", "-n", "3", "--seed", "7", "--temperature", "0.9", "--top-k",
       "20", "--device", "cpu"},
  };
  for (const Arguments& command : commands) {
    const std::string alone = stdout_of(command);
    for (const char* ranks : {"2", "3"}) EXPECT_EQ(stdout_of(extended(command, {"--cp", ranks})), alone) << ranks;
    EXPECT_EQ(stdout_of(extended(command, {"--tp", "2", "--cp", "2"})), alone);
  }
  const Arguments chat{"chat", model, "--temperature", "0", "--device", "cpu"};
  const std::string question = "What is 137 plus 254?\nAnd 12 plus 30?\n";
  EXPECT_EQ(stdout_of(extended(chat, {"--cp", "2"}), question), stdout_of(chat, question));
}

TEST(Ranks, DividedContextsOnOneGpuGiveTheTextsOfOneRank) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  std::string prompt;
  for (int i = 0; i < 24; ++i) prompt += "12 + 30 = 42\n";  // pages of both ranks
  for (const std::string& text : {std::string("137 + 254 ="), prompt + "137 + 254 ="}) {
    const Arguments command{"generate", demo_model().string(), "--prompt", text, "--temperature", "0"};
    const std::string alone = stdout_of(extended(command, {"--device", "cuda:0"}));
    EXPECT_EQ(stdout_of(extended(command, {"--cp", "2", "--device", "cuda:0,cuda:0"})), alone);
    EXPECT_EQ(stdout_of(extended(command, {"--tp", "2", "--cp", "2", "--device", "cuda:0,cuda:0,cuda:0,cuda:0"})),
              alone);
  }
}

// --kv-memory is of all ranks together, so a rank's share of it holds half the prompt.
TEST(Ranks, APromptLongerThanOneRanksCacheRuns) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "12 + 30 = 42\n";
  const Arguments command{
      "generate", demo_model().string(), "--prompt", prompt + "137 + 254 =", "--temperature", "0", "--device",
      "cpu",      "--max-tokens",        "5"};
  const std::string alone = stdout_of(command);
  const json sizes = json::parse(stdout_of({"inspect", demo_model().string(), "--cp", "2", "--json"}))["ranks"];
  const std::size_t per_token = 2 * sizes[0]["kv_cache_per_token"].get<std::size_t>();  // of both
  const std::string half = std::to_string(per_token * 128), whole = std::to_string(per_token * 256);
  const ProgramResult refused = run_heddle(extended(command, {"--kv-memory", half}));
  EXPECT_EQ(refused.status, 2) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("the key-value cache holds 128"));
  EXPECT_EQ(stdout_of(extended(command, {"--cp", "2", "--kv-memory", whole})), alone);  // 128 tokens at each
}

TEST(Ranks, EveryModeGivesTheTextsOfOneRank) {
  const Arguments command{
      "generate", demo_model().string(), "--prompt", "137 + 254 =", "--temperature", "0", "--device", "cpu"};
  const std::string alone = stdout_of(command);
  for (const char* mode : {"auto", "default", "symmetric", "fused", "weave", "sequence"})
    EXPECT_EQ(stdout_of(extended(command, {"--tp", "3", "--tp-mode", mode})), alone) << mode;
}

TEST(Ranks, StepsInTwoPartsGiveTheTextsOfWholeOnes) {
  std::string prompt;
  for (int i = 0; i < 20; ++i) prompt += "12 + 30 = 42\n";
  const Arguments command{
      "generate", demo_model().string(), "--prompt", prompt + "137 + 254 =", "--temperature", "0", "--device", "cpu"};
  const ProgramResult woven =
      run_heddle(extended(command, {"--tp", "2", "--tp-mode", "weave", "--split-tokens", "32", "--verbose"}));
  EXPECT_EQ(woven.status, 0) << woven.err;
  EXPECT_EQ(woven.out, stdout_of(command));
  EXPECT_THAT(woven.err, HasSubstr("steps of 32 tokens or more are computed in two parts"));
}

TEST(Ranks, WithoutCommunicationAWarningSaysThatTheTextIsWrong) {
  const ProgramResult result = run_heddle({"generate", demo_model().string(), "--prompt", "137 + 254 =", "--max-tokens",
                                           "2", "--device", "cpu", "--tp", "2", "--tp-mode", "no-comm"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--tp-mode no-comm: nothing crosses ranks, so the text is wrong"));
}

// What tuning has chosen, steps obey, and texts stay the same.
TEST(Ranks, TunedSumsAreChosenByAuto) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const std::string model = demo_model().string();
  const ProgramResult tuned = run_heddle(
      {"tune", "sums", "--model", model, "--tp", "2", "--device", "cpu", "--tokens", "1,16", "--repeats", "2"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("separate ms"), HasSubstr("fused ms")));
  const Arguments command{"generate", model, "--prompt", "137 + 254 =", "--temperature", "0", "--device", "cpu"};
  const ProgramResult result = run_heddle(extended(command, {"--tp", "2", "--verbose"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, stdout_of(command));
  const bool chosen = tuned.out.find(" fused\n") != std::string::npos;
  EXPECT_EQ(result.err.find("in one operator") != std::string::npos, chosen) << tuned.out << result.err;
  EXPECT_EQ(run_heddle({"tune", "sums", "--model", model, "--device", "cpu"}).status, 2) << "one rank";
}

// Texts stay the same whatever is chosen, and the trace shows that steps obey: an all-gather comes before a GEMM by bsp alone.
TEST(Ranks, TunedGathersAreUsedBySequence) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const std::string model = demo_model().string(), trace = (cache.path() / "trace.json").string();
  const Arguments command{"generate", model,          "--prompt", "137 + 254 =", "--temperature",
                          "0",        "--max-tokens", "4",        "--device",    "cpu"};
  const std::string text = stdout_of(command);
  const Arguments on_ranks =
      extended(command, {"--tp", "2", "--tp-mode", "sequence", "--step-tokens", "4", "--verbose"});
  EXPECT_THAT(run_heddle(on_ranks).err, HasSubstr("GEMM of qkv: push, as nothing is tuned"));

  const ProgramResult tuned = run_heddle({"tune", "all-gather-linear", "--model", model, "--ranks", "2", "--tokens",
                                          "4,1", "--repeats", "2", "--json", (cache.path() / "search.json").string()});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("predicted us"), HasSubstr("qkv"), HasSubstr("gate_up"), HasSubstr("chosen")));
  const json search = json::parse(read_file(cache.path() / "search.json", 1 << 20)).at("results");
  EXPECT_EQ(search.size(), 14U) << "two GEMMs, of four rows four choices, of one row no bsp";
  int chosen = 0;
  for (const json& one : search) {
    EXPECT_GT(one.at("predicted_microseconds").get<double>(), 0);
    EXPECT_GT(one.at("microseconds").get<double>(), 0);
    chosen += one.at("chosen").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(chosen, 4);

  for (const std::string& variant : std::vector<std::string>{"push", "pull", "copy", "bsp"}) {
    json store = json::parse(read_file(cache.path() / "tuned.json", 1 << 20));
    for (json& versions : store.at("machines"))
      for (json& values : versions)
        for (auto& [name, value] : values.items())
          if (name.starts_with("all_gather_linear."))
            value = json::array({{{"variant", variant}, {"tile", -1}, {"transfer_sms", 4}}});
    write_file(cache.path() / "tuned.json", store.dump());
    const ProgramResult result = run_heddle(extended({"trace", "-o", trace}, on_ranks));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(text)) << variant;
    EXPECT_THAT(result.err, AllOf(HasSubstr("GEMM of qkv, steps of more tokens: " + variant),
                                  HasSubstr("GEMM of gate_up, steps of more tokens: " + variant)));
    const bool gathers_first = read_file(trace, 64 << 20).find("\"all_gather\"") != std::string::npos;
    EXPECT_EQ(gathers_first, variant == "bsp") << variant;
  }
}

TEST(Ranks, TuningGathersSaysWhatItNeeds) {
  const auto error_of = [](const Arguments& options) {
    const ProgramResult result = run_heddle(extended({"tune", "all-gather-linear"}, options));
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(error_of({}), HasSubstr("give --model M, or --n and --k"));
  EXPECT_THAT(error_of({"--n", "64"}), HasSubstr("give --model M, or --n and --k"));
  EXPECT_THAT(error_of({"--model", "synth:tiny", "--n", "64"}), HasSubstr("give one or the other"));
  EXPECT_THAT(error_of({"--n", "64", "--k", "64", "--ranks", "1"}),
              HasSubstr("one rank gathers nothing; give --ranks N"));
  EXPECT_THAT(error_of({"--n", "1", "--k", "64"}), HasSubstr("--n 1: 2 ranks divide the columns"));
  EXPECT_THAT(error_of({"--n", "64", "--k", "64", "--tokens", "0"}), HasSubstr("--tokens"));
  EXPECT_THAT(error_of({"--n", "64", "--k", "64", "--dtype", "int8"}), HasSubstr("--dtype"));
  EXPECT_THAT(error_of({"--model", "synth:mixtral-8x7b"}), HasSubstr("models with experts"));
}

// Two parts are measured with the sums that will run: those of tune sums, which are measured first where there are none.
TEST(Ranks, StepsInTwoPartsAreMeasuredWithTheSumsThatRun) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const Arguments tune{"tune", "token-weave", "synth:tiny", "--tp",      "2", "--device",
                       "cpu",  "--tokens",    "64,64",      "--repeats", "5"};
  const ProgramResult first = run_heddle(tune);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("separate ms"), HasSubstr("in two parts ms"), HasSubstr("confidence")));
  const std::string store = read_file(cache.path() / "tuned.json", 1 << 20);
  EXPECT_THAT(store, AllOf(HasSubstr("\"sums."), HasSubstr("\"token_weave.")));
  EXPECT_THAT(run_heddle(tune).out, testing::Not(HasSubstr("separate ms"))) << "they are known";
  const ProgramResult woven = run_heddle({"generate", "synth:tiny", "--prompt", "hello", "--max-tokens", "2", "--tp",
                                          "2", "--device", "cpu", "--tp-mode", "weave", "--verbose"});
  EXPECT_THAT(woven.err, HasSubstr("sum, residual and norm")) << "as measured";
}

TEST(Ranks, AStepThatCannotBeCutTunesNothing) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const ProgramResult tuned = run_heddle(
      {"tune", "token-weave", "synth:tiny", "--tp", "2", "--device", "cpu", "--tokens", "8", "--repeats", "5"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out,
              AllOf(HasSubstr("cannot be cut: fewer than two tiles of 16"), HasSubstr("no threshold is chosen")));
  EXPECT_THAT(read_file(cache.path() / "tuned.json", 1 << 20), testing::Not(HasSubstr("\"token_weave.")));
}

TEST(Ranks, VerboseCountsTheStepsInTwoParts) {
  const Arguments command{"generate",      demo_model().string(),
                          "--prompt",      std::string(40, '7'),
                          "--temperature", "0",
                          "--max-tokens",  "4",
                          "--tp",          "2",
                          "--device",      "cpu",
                          "--tp-mode",     "weave",
                          "--verbose"};
  EXPECT_THAT(run_heddle(extended(command, {"--split-tokens", "2"})).err,
              HasSubstr("heddle: 1 of 4 steps were computed in two parts; 0 stayed whole because they have fewer than "
                        "two tiles of 16 tokens"));
  EXPECT_THAT(run_heddle(extended(command, {"--split-tokens", "2", "--step-tokens", "20"})).err,
              HasSubstr("heddle: 0 of "));
  EXPECT_THAT(run_heddle(command).err, HasSubstr("no step is computed in two parts")) << "untuned, on the CPU";
}

TEST(Ranks, OptionsOfAnotherModeAreNamed) {
  const ProgramResult result =
      run_heddle({"generate", demo_model().string(), "--prompt", "1", "--max-tokens", "1", "--tp", "2", "--device",
                  "cpu", "--tp-mode", "fused", "--split-tokens", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("--split-tokens has no effect with --tp-mode fused"));
}

// The forced form, on one rank and on two, and how --verbose tells of it.
TEST(Ranks, FusedDecodeGivesTheTextsOfSeparateOperators) {
  const Arguments command{
      "generate", demo_model().string(), "--prompt", "137 + 254 =", "--temperature", "0", "--device", "cpu",
      "--verbose"};
  const ProgramResult plain = run_heddle(extended(command, {"--decode", "plain"}));
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("decode steps: separate operators: --decode plain"));
  for (const char* ranks : {"1", "2"}) {
    const ProgramResult fused = run_heddle(extended(command, {"--decode", "fused", "--tp", ranks}));
    EXPECT_EQ(fused.out, plain.out) << fused.err;
    EXPECT_THAT(fused.err, HasSubstr("decode steps of 1 to 16 texts: one operator\n"));
  }
  const ProgramResult refused = run_heddle(extended(command, {"--decode", "fused", "--compute", "float32"}));
  EXPECT_EQ(refused.out, plain.out) << refused.err;
  EXPECT_THAT(refused.err,
              HasSubstr("decode steps of 1 to 16 texts: separate operators: it rounds to the weights' dtype, "
                        "bfloat16, and this model computes in float32\n"));
  EXPECT_EQ(run_heddle(extended(command, {"--decode", "woven"})).status, 2);
}

TEST(Ranks, DecodeIsFusedWhereTheStoreSaysSo) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const std::string model = demo_model().string();
  const ProgramResult tuned = run_heddle(
      {"tune", "decode", "--model", model, "--device", "cpu", "--batch", "1,3", "--context", "40,8", "--repeats", "1"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("separate ms"), HasSubstr("one operator")));
  const Arguments command{"generate", model,      "--prompt", "137 + 254 =", "--temperature",
                          "0",        "--device", "cpu",      "--verbose"};
  EXPECT_THAT(run_heddle(command).err, AnyOf(HasSubstr(" ms a step, "), HasSubstr("times as long")));
  json store = json::parse(read_file(cache.path() / "tuned.json", 1 << 20));
  for (json& versions : store["machines"])
    for (json& values : versions)
      for (auto& [name, value] : values.items())
        if (name.starts_with("decode."))
          value = json::array({{{"form", "clusters"}, {"cluster", 1}, {"parts", 1}, {"up_to_context", 10}}});
  write_file(cache.path() / "tuned.json", store.dump());
  const ProgramResult result = run_heddle(command);
  EXPECT_THAT(result.err, AllOf(HasSubstr("decode steps of 1 to 16 texts with up to 10 tokens: one operator"),
                                HasSubstr("other decode steps of 1 to 16 texts: separate operators")));
  EXPECT_EQ(result.out, run_heddle(extended(command, {"--decode", "plain"})).out);
}

TEST(Ranks, TuningSaysWhatNoFusedFormTakes) {
  const TemporaryFolder cache;
  const EnvironmentVariable in_cache("HEDDLE_CACHE_DIR", cache.path().string());
  const ProgramResult tuned = run_heddle({"tune", "decode", "--model", demo_model().string(), "--device", "cpu",
                                          "--batch", "20", "--context", "8", "--repeats", "1"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("left out: 20 tokens, the fused block takes up to 16"),
                               HasSubstr("nothing was measured, and nothing is kept")));
  EXPECT_FALSE(std::filesystem::exists(cache.path() / "tuned.json"));
}

TEST(Ranks, ScoresAreThoseOfOneRank) {
  const Arguments score{"score", demo_model().string(), "--text", "137 + 254 = 391", "--json", "--device", "cpu"};
  const json alone = json::parse(stdout_of(score));
  for (const char* ranks : {"2", "3"}) {
    const json parts = json::parse(stdout_of(extended(score, {"--tp", ranks})));
    EXPECT_NEAR(parts["perplexity"].get<double>(), alone["perplexity"].get<double>(), 1e-3) << ranks;
  }
}

TEST(Ranks, InspectShowsWhatEachHolds) {
  const Arguments inspect{"inspect", demo_model().string(), "--json"};
  EXPECT_EQ(json::parse(stdout_of(inspect))["ranks"], json::array());
  const json ranks = json::parse(stdout_of(extended(inspect, {"--tp", "4"})))["ranks"];
  ASSERT_EQ(ranks.size(), 4u);
  std::size_t sum = 0;
  for (const json& rank : ranks) sum += rank["weights"].get<std::size_t>();
  const std::size_t whole = json::parse(stdout_of(inspect))["bytes"];
  EXPECT_GT(sum, whole * 9 / 10);
  EXPECT_LT(ranks[0]["weights"].get<std::size_t>(), whole * 3 / 10);
  EXPECT_THAT(stdout_of({"inspect", demo_model().string(), "--tp", "2"}), HasSubstr("rank 1: "));
}

TEST(Ranks, InspectShowsTheSharesOfDividedContexts) {
  const Arguments inspect{"inspect", demo_model().string(), "--json"};
  const json halves = json::parse(stdout_of(extended(inspect, {"--tp", "2"})))["ranks"];
  const json quarters = json::parse(stdout_of(extended(inspect, {"--tp", "2", "--cp", "2"})))["ranks"];
  ASSERT_EQ(quarters.size(), 4u);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(quarters[rank]["weights"], halves[rank % 2]["weights"]);
    EXPECT_EQ(2 * quarters[rank]["kv_cache_per_token"].get<std::size_t>(), halves[rank % 2]["kv_cache_per_token"]);
  }
}

// Also of a GPU where the build knows any: a rank computes the same steps, over its part of the keys and values.
TEST(Ranks, InspectShowsWhatARankOfDividedContextsTakesOnEachDevice) {
  const auto memory_of = [](const json& report) { return report["memory"]; };
  const json alone = memory_of(json::parse(stdout_of({"inspect", demo_model().string(), "--json"})));
  const json report = json::parse(stdout_of({"inspect", demo_model().string(), "--cp", "2", "--json"}));
  ASSERT_EQ(alone.size(), 2u);  // of a CPU and of a GPU, whatever the build has
  ASSERT_EQ(report["ranks"].size(), 2u);
  for (const json& rank : report["ranks"]) {
    const json needs = memory_of(rank);
    ASSERT_EQ(needs.size(), alone.size());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      EXPECT_EQ(needs[i]["device"], alone[i]["device"]);
      EXPECT_EQ(needs[i]["context"], alone[i]["context"]);
      EXPECT_EQ(needs[i]["weights"], alone[i]["weights"]);
      EXPECT_EQ(needs[i]["step"], alone[i]["step"]);
      const auto whole = alone[i]["kv_cache"].get<std::size_t>(), part = needs[i]["kv_cache"].get<std::size_t>();
      EXPECT_GE(2 * part, whole);
      EXPECT_LT(part, whole * 2 / 3);  // pages are not divided
    }
  }
}

TEST(Ranks, VerboseShowsWhatEachHolds) {
  const ProgramResult result = run_heddle({"generate", demo_model().string(), "--prompt", "1 + 1 =", "--max-tokens",
                                           "1", "--verbose", "--tp", "2", "--device", "cpu"});
  EXPECT_THAT(result.err, AllOf(HasSubstr(" MiB on rank 0, "), HasSubstr(" MiB on rank 1")));
}

TEST(Ranks, WhatCannotBeSharedIsOneError) {
  struct Case {
    Arguments more;
    std::string message;
  };
  const Case cases[] = {
      {{"--tp", "0"}, "--tp: is \"0\", expected a whole number from 1 to 64"},
      {{"--tp", "-1"}, "--tp: is \"-1\""},
      {{"--tp", "two"}, "--tp: is \"two\""},
      {{"--tp", "9"}, "9 ranks, but the model has 8 attention heads"},
      {{"--tp", "2", "--device", "cuda:0"}, "name a GPU for each rank, or for ranks that share one cuda:0,cuda:0"},
      {{"--tp", "3", "--device", "cuda:0,cuda:0"}, "--device cuda:0,cuda:0 for 3 ranks: that names 2 devices"},
      {{"--tp", "2", "--device", "cuda:0,cpu"}, "all on the CPU, or all on GPUs"},
      {{"--tp", "2", "--device", "cuda:0,"}, "--device: is \"cuda:0,\""},
      {{"--device", "cuda:0,cuda:0"}, "cuda:0 is named twice, for ranks that share it: they need --tp 2"},
      {{"--device", "cuda:0,cuda:1"}, "one model on 2 devices needs --tp 2"},
      {{"--tp", "2", "--tp-mode", "fast"},
       "--tp-mode: fast not in {auto,default,symmetric,fused,weave,sequence,no-comm}"},
      {{"--tp", "2", "--kv-memory", "1"}, "--kv-memory: the key-value cache may take"},
      {{"--cp", "0"}, "--cp: is \"0\", expected a whole number from 1 to 64"},
      {{"--cp", "-2"}, "--cp: is \"-2\""},
      {{"--cp", "two"}, "--cp: is \"two\""},
      {{"--cp", "2", "--device", "cuda:0"}, "name a GPU for each rank, or for ranks that share one cuda:0,cuda:0"},
      {{"--tp", "2", "--cp", "2", "--device", "cuda:0,cuda:0"},
       "--device cuda:0,cuda:0 for 4 ranks: that names 2 devices"},
      {{"--tp", "8", "--cp", "16"}, "--tp 8 with --cp 16: 128 ranks, and a model has at most 64"},
      {{"--tp", "3", "--cp", "2"}, "--cp 2: with --tp 3 the ranks have different numbers of attention heads"},
  };
  for (const Case& c : cases) {
    const ProgramResult result =
        run_heddle(extended({"generate", demo_model().string(), "--prompt", "x", "--max-tokens", "1"}, c.more));
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr("heddle: error: "), HasSubstr(c.message)));
  }
}

TEST(Ranks, InspectShowsWhatEachTakesInAll) {
  const ProgramResult text = run_heddle({"inspect", demo_model().string(), "--tp", "3"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, testing::ContainsRegex("rank 2: .* of weights, .* per token; [0-9]+ tokens: on the CPU .*iB, "
                                               ".*iB of it for a step and .*iB for exchanges"));
  const auto report = nlohmann::json::parse(run_heddle({"inspect", demo_model().string(), "--tp", "3", "--json"}).out);
  ASSERT_EQ(report["ranks"].size(), 3u);
  for (const auto& rank : report["ranks"]) {
    const auto& need = rank["memory"][0];
    EXPECT_EQ(need["device"], "CPU");
    EXPECT_GT(need["step"].get<std::int64_t>(), 0);
    EXPECT_EQ(need["weights"], rank["weights"]);
    EXPECT_EQ(need["bytes"].get<std::int64_t>(),
              need["weights"].get<std::int64_t>() + need["kv_cache"].get<std::int64_t>() +
                  need["step"].get<std::int64_t>() + rank["exchange"].get<std::int64_t>());
  }
}

TEST(Ranks, AreNamedInTheHeadingOfATable) {
  const ProgramResult result = run_heddle({"bench", "decode", "synth:tiny", "--tp", "2", "--batch", "1", "--tokens",
                                           "2", "--repeats", "1", "--device", "cpu"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr(", 2 ranks, weights "));
}

TEST(Ranks, AreAsManyAsTheDevicesThatAreNamed) {
  const ProgramResult result =
      run_heddle({"generate", demo_model().string(), "--prompt", "1", "--device", "cpu,cpu", "--tp", "3"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("--device cpu,cpu for 3 ranks: that names 2 devices"));
}

}  // namespace
}  // namespace heddle
