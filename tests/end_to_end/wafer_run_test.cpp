// heddle wafer run: the demo model on a simulated wafer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> run_of(std::vector<std::string> more, const std::string& mesh = "8") {
  std::vector<std::string> arguments{"wafer", "run", "--model", demo_model().string(), "--mesh", mesh};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Width and height, of the header.
std::pair<unsigned, unsigned> size_of_png(const std::string& file) {
  const std::string bytes = read_file(file, 1 << 20);
  EXPECT_THAT(bytes, StartsWith("\x89PNG"));
  const auto word = [&](std::size_t at) {
    unsigned value = 0;
    for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(i));
    return value;
  };
  return {word(16), word(20)};
}

TEST(WaferRun, TheDemoModelSaysWhatItSaysOnTheCpu) {
  const std::string prompt = "12 + 30 =";
  const ProgramResult cpu = run_heddle({"generate", "--model", demo_model().string(), "--prompt", prompt, "--dtype",
                                        "float32", "--temperature", "0", "--max-tokens", "12", "--json"});
  ASSERT_EQ(cpu.status, 0) << cpu.err;
  const auto expected = nlohmann::json::parse(cpu.out);
  for (const std::string mesh : {"8", "16", "10x20"}) {
    const ProgramResult wafer = run_heddle(run_of({"--prompt", prompt, "--max-tokens", "12", "--json"}, mesh));
    ASSERT_EQ(wafer.status, 0) << wafer.err;
    const auto object = nlohmann::json::parse(wafer.out);
    EXPECT_EQ(object["text"], expected["text"]) << mesh;
    ASSERT_EQ(object["tokens"].size(), object["token_cycles"].size());
    double decoded = 0;
    for (std::size_t i = 1; i < object["tokens"].size(); ++i) decoded += object["token_cycles"][i].get<double>();
    EXPECT_DOUBLE_EQ(object["decode_cycles"], decoded);
    EXPECT_EQ(object["token_cycles"][0], object["prefill"]["cycles"]);
    // The analytical model charges K and V for all heads, and has no logits, no token choice and no head-by-head
    // attention: near, not equal.
    const double chosen = object["last_token"]["breakdown"]["token choice"].get<double>() *
                          static_cast<double>(object["tokens"].size() - 1);
    EXPECT_NEAR((decoded - chosen) / object["analytical"]["decode_cycles"].get<double>(), 1, 0.1) << mesh;
    EXPECT_GT(object["prefill"]["cycles"], object["analytical"]["prefill_cycles"]);
  }
}

// The cycles of the demo model, part by part, with what each is. They are the program's on one device's constants: any
// change of either shows here.
TEST(WaferRun, EachPartHasItsCyclesAndSaysWhatTheyAre) {
  const ProgramResult result = run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "4", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto object = nlohmann::json::parse(result.out);
  struct Part {
    const char *phase, *name, *basis;
    double cycles;
  };
  const Part parts[] = {
      {"prefill", "Q, K, V", "simulated + analytical", 327772.17},
      {"prefill", "scores", "counted + analytical", 119733.20},
      {"prefill", "SwiGLU", "analytical", 0},
      {"prefill", "transition", "simulated + analytical", 22061.63},
      {"prefill", "hand-over", "simulated + analytical", 694.53},
      {"last_token", "KV shift", "simulated + analytical", 113.44},
      {"last_token", "embedding", "simulated + analytical", 71.81},
      {"last_token", "all-reduce", "simulated + analytical", 5332.58},
      {"last_token", "token choice", "simulated + analytical", 3335.65},
      {"last_token", "element-wise work", "analytical", 0},
      {"last_token", "fitted residual", "fitted", 10371.06},
  };
  for (const Part& part : parts) {
    EXPECT_EQ(object["basis"][part.phase]["breakdown"][part.name], part.basis) << part.name;
    const double cycles = object[part.phase]["breakdown"][part.name];
    if (part.cycles > 0) {
      EXPECT_NEAR(cycles, part.cycles, 0.01) << part.name;
    }
  }
  for (const char* phase : {"prefill", "last_token"}) {
    const auto& by_basis = object[phase]["cycles_by_basis"];
    double sum = 0;
    for (const auto& [basis, cycles] : by_basis.items()) sum += cycles.get<double>();
    EXPECT_NEAR(sum, object[phase]["cycles"].get<double>(), 1e-6 * sum);
    EXPECT_GT(by_basis["simulated"], 0);
    EXPECT_GT(by_basis["analytical"], 0);  // values, times a cost
    EXPECT_EQ(object["basis"][phase]["routes"], "counted");
    EXPECT_EQ(object["basis"][phase]["energy_j"], "fitted");
    // Hops and words are what is simulated or counted, and nothing else is.
    double unfitted = 0;
    for (const auto& [basis, cycles] : by_basis.items())
      if (basis == "simulated" || basis == "counted") unfitted += cycles.get<double>();
    EXPECT_DOUBLE_EQ(object[phase]["hops_and_words_cycles"], unfitted);
  }
  EXPECT_NEAR(object["prefill"]["hops_and_words_cycles"].get<double>(), 295179, 0.01);
  EXPECT_NEAR(object["last_token"]["hops_and_words_cycles"].get<double>(), 4585, 0.01);
  EXPECT_EQ(object["basis"]["prefill"]["cycles"], "simulated + counted + analytical");
  EXPECT_EQ(object["basis"]["prefill"]["microseconds"], "simulated + counted + analytical");
  EXPECT_EQ(object["basis"]["last_token"]["cycles"], "simulated + analytical + fitted");
  EXPECT_EQ(object["last_token"]["cycles_by_basis"]["fitted"], object["last_token"]["breakdown"]["fitted residual"]);

  const ProgramResult text = run_heddle(run_of({"-p", "12 + 30 =", "--max-tokens", "4"}));
  EXPECT_THAT(text.out,
              testing::ContainsRegex("prefill .*: [0-9.]+ % simulated, [0-9.]+ % counted, [0-9.]+ % analytical;"));
  EXPECT_THAT(text.out, testing::ContainsRegex("hops and words +[0-9]+ cycles of these, [0-9.]+ %: simulated \\+ "
                                               "counted, in which nothing was fitted"));
  EXPECT_THAT(text.out,
              testing::ContainsRegex("hops and words +[0-9]+ cycles of the last token, [0-9.]+ %: simulated,"));
  EXPECT_THAT(text.out, testing::Not(HasSubstr("100.0 % simulated")));
  EXPECT_THAT(text.out,
              testing::ContainsRegex("norms +[0-9]+ cycles, [0-9.]+ %, [0-9]+ simulated \\+ [0-9]+ analytical"));
}

// The same run on a device whose operations, calls, stages and values are dear: what is simulated or counted is the same.
TEST(WaferRun, HopsAndWordsHoldNoFittedConstant) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "dear.json").string();
  write_file(file, R"({"base": "wse-2", "mac_cycles": 2, "call_cycles": 100, "value_cycles": 50, "beta_cycles": 17,
                       "decode_serial_cycles": 5000, "vector_slice_cycles": 3})");
  std::vector<nlohmann::json> runs;
  for (const std::string& device : {std::string("wse-2"), file}) {
    const ProgramResult result =
        run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "3", "--device", device, "--json"}));
    ASSERT_EQ(result.status, 0) << result.err;
    runs.push_back(nlohmann::json::parse(result.out));
  }
  for (const char* phase : {"prefill", "last_token"}) {
    EXPECT_NEAR(runs[0][phase]["hops_and_words_cycles"].get<double>(),
                runs[1][phase]["hops_and_words_cycles"].get<double>(), 1e-6);
    EXPECT_LT(runs[0][phase]["cycles"], runs[1][phase]["cycles"]);
  }
}

// What the analytical model says beside a run is what `predict` says of the same work, and the run's own options.
TEST(WaferRun, TheAnalyticalColumnIsPredictsOwn) {
  struct Case {
    std::vector<std::string> options;
    double prefill, token;
  };
  for (const auto& [options, prefill, token] : {Case{{}, 1307378.758, 96065.759},
                                                {{"--k", "1"}, 1307378.758, 97299.190},
                                                {{"--sync", "barrier"}, 1307378.758, 96689.759},
                                                {{"--sync", "rendezvous", "--k", "1"}, 1307378.758, 97767.190}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(options, " ")));
    std::vector<std::string> run = run_of({"--prompt", "12 + 30 =", "--max-tokens", "2", "--json"});
    run.insert(run.end(), options.begin(), options.end());
    const ProgramResult result = run_heddle(run);
    ASSERT_EQ(result.status, 0) << result.err;
    const auto object = nlohmann::json::parse(result.out);
    const auto& analytical = object["analytical"];
    EXPECT_NEAR(analytical["prefill_cycles"].get<double>(), prefill, 0.01);
    EXPECT_NEAR(analytical["decode_cycles"].get<double>(), token, 0.01);
    double sum = 0;
    for (const auto& [part, cycles] : analytical["prefill_breakdown"].items()) sum += cycles.get<double>();
    EXPECT_NEAR(sum, analytical["prefill_cycles"].get<double>(), 1e-6 * sum);
    double of_token = 0;
    for (const auto& [part, cycles] : analytical["last_token_breakdown"].items()) of_token += cycles.get<double>();
    EXPECT_NEAR(of_token, analytical["decode_cycles"].get<double>(), 1e-6 * of_token);  // one token was decoded
    EXPECT_EQ(object["basis"]["analytical"]["last_token_breakdown"]["fitted residual"], "fitted");
    for (const auto& [phase, cycles] :
         {std::pair{"prefill", analytical["prefill_cycles"]}, {"decode", analytical["decode_cycles"]}}) {
      std::vector<std::string> predict{"wafer",     "predict", "--model", (demo_model() / "config.json").string(),
                                       "--phase",   phase,     "--mesh",  "8",
                                       "--context", "8",       "--json"};
      for (std::size_t i = 0; i + 1 < options.size(); i += 2)
        if (options[i] != "--k" || std::string_view(phase) == "decode")
          predict.insert(predict.end(), {options[i], options[i + 1]});
      const ProgramResult predicted = run_heddle(predict);
      ASSERT_EQ(predicted.status, 0) << predicted.err;
      EXPECT_DOUBLE_EQ(nlohmann::json::parse(predicted.out)["cycles"], cycles) << phase;
    }
    EXPECT_EQ(object["sync"], options.size() > 0 && options[0] == "--sync" ? options[1] : "dataflow");
    EXPECT_EQ(object["phases"], !options.empty() && options[options.size() - 2] == "--k" ? 1 : 2);
  }
}

// Where cores hardly compute, a barrier costs the prefill's sums their way: in the analytical column, too.
TEST(WaferRun, TheAnalyticalPrefillHasTheRunsSynchronisation) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "quick.json").string();
  write_file(file, R"({"base": "wse-2", "mac_cycles": 0.01, "call_cycles": 0.01})");
  std::vector<double> cycles;
  for (const char* sync : {"dataflow", "barrier"}) {
    const ProgramResult run =
        run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "1", "--device", file, "--sync", sync, "--json"}));
    const ProgramResult predicted =
        run_heddle({"wafer", "predict", "--model", (demo_model() / "config.json").string(), "--phase", "prefill",
                    "--mesh", "8", "--context", "8", "--device", file, "--sync", sync, "--json"});
    ASSERT_EQ(run.status + predicted.status, 0) << run.err << predicted.err;
    cycles.push_back(nlohmann::json::parse(run.out)["analytical"]["prefill_cycles"]);
    EXPECT_DOUBLE_EQ(nlohmann::json::parse(predicted.out)["cycles"], cycles.back());
  }
  EXPECT_LT(cycles[0], cycles[1]);
}

// One token comes from the prompt alone: nothing is said of a decode that was not.
TEST(WaferRun, WithoutDecodeSaysNothingOfIt) {
  const ProgramResult result = run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "1", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto object = nlohmann::json::parse(result.out);
  for (const char* key : {"decode_cycles", "last_token", "idle_share"}) {
    EXPECT_FALSE(object.contains(key)) << key;
    EXPECT_FALSE(object["basis"].contains(key)) << key;
  }
  EXPECT_FALSE(object["analytical"].contains("decode_cycles"));
  EXPECT_EQ(object["basis"]["token_cycles"], object["basis"]["prefill"]["cycles"]);
  EXPECT_EQ(result.out.find("\"\""), std::string::npos) << "an empty basis";
}

// The model moves from 12 x 12 cores to 10 x 20, or the other way: the tokens are the CPU's.
TEST(WaferRun, TwoMeshesSayTheSame) {
  for (const auto& [prefill, decode] : {std::pair{"12", "10x20"}, {"10x20", "9"}}) {
    const ProgramResult result =
        run_heddle({"wafer", "run", "--model", demo_model().string(), "--prefill-mesh", prefill, "--decode-mesh",
                    decode, "--prompt", "12 + 30 =", "--max-tokens", "6", "--check", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const auto object = nlohmann::json::parse(result.out);
    EXPECT_EQ(object["text"], " 42\n");
    EXPECT_EQ(object["check"]["same_token"], object["check"]["rows"]);
    EXPECT_NE(object["prefill_mesh"], object["decode_mesh"]);
    EXPECT_GT(object["prefill"]["breakdown"]["transition"], 0);
  }
  const ProgramResult half =
      run_heddle({"wafer", "run", "--model", demo_model().string(), "--prefill-mesh", "9", "--prompt", "x"});
  EXPECT_EQ(half.status, 2);
  EXPECT_THAT(half.err, HasSubstr("--prefill-mesh and --decode-mesh"));
}

// 12 x 12 cores of 84000 bytes: the keys and values of 401 tokens beside the weights are too much, and four idle rows
// have room for them.
TEST(WaferRun, RefusesAPromptThatFitsOnlyWithoutItsKeysAndValues) {
  const TemporaryFolder folder;
  const auto device = [&](int rows) {
    const std::string file = (folder.path() / fmt::format("{}.json", rows)).string();
    write_file(file,
               fmt::format(R"({{"base": "wse-2", "mesh_width": 12, "mesh_height": {}, "sram_bytes": 84000}})", rows));
    return file;
  };
  std::string prompt;
  for (int i = 0; i < 50; ++i) prompt += "12 + 30 = ";
  const auto run_on = [&](int rows) {
    return run_heddle(run_of({"--prompt", prompt, "--max-tokens", "1", "--device", device(rows), "--json"}, "12"));
  };
  const ProgramResult refused = run_on(12);
  EXPECT_EQ(refused.status, 2) << refused.out;
  EXPECT_THAT(refused.err,
              testing::ContainsRegex("need [0-9]+ bytes \\([0-9]+ of them weights, [0-9]+ the prompt's keys "
                                     "and values\\)"));
  const ProgramResult spilled = run_on(16);
  ASSERT_EQ(spilled.status, 0) << spilled.err;
  const auto object = nlohmann::json::parse(spilled.out);
  EXPECT_EQ(object["spill"]["first_row"], 12);
  EXPECT_EQ(object["spill"]["rows"], 4);
  EXPECT_GT(object["prefill"]["breakdown"]["KV spill"], 0);
}

TEST(WaferRun, PrintsEachTokenWithItsCyclesAndDrawsTheCache) {
  const TemporaryFolder folder;
  const std::string picture = (folder.path() / "kv.png").string();
  const ProgramResult result =
      run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "4", "--kv", "concat", "--heatmap", picture}));
  ASSERT_EQ(result.status, 0) << result.err;
  // A prompt of eight tokens and four more, all in the last row but the first seven: the token that is printed last has
  // not been appended.
  for (const char* line : {"\n       9 ", "\n      10 ", "\n      11 ", "11 tokens, 4 in the fullest of 8 rows"})
    EXPECT_THAT("\n" + result.out, HasSubstr(line));
  EXPECT_THAT(result.out, testing::ContainsRegex("11 +204 +[0-9]+ cycles  "));
  EXPECT_EQ(size_of_png(picture).second % 8, 0);  // whole pixels for each of eight rows
}

TEST(WaferRun, KvDrawsTheCacheOfAModelThatIsNotThere) {
  const TemporaryFolder folder;
  std::vector<std::string> pictures;
  for (const std::string method : {"shift", "concat"}) {
    const std::string picture = (folder.path() / (method + ".png")).string();
    std::vector<std::string> arguments{"wafer", "kv",   "--model", "llama-3-8b", "--heatmap",
                                       picture, "--kv", method,    "--context",  "4096"};
    if (method == "shift") arguments.insert(arguments.end(), {"--tokens", "2048"});  // appended: as many as fit
    const ProgramResult result = run_heddle(arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(size_of_png(picture).second % 360, 0);
    pictures.push_back(read_file(picture, 1 << 20));
    EXPECT_THAT(result.out, HasSubstr(method == "shift" ? "2048 tokens after a prompt of 4096" : "394 tokens after"));
  }
  EXPECT_NE(pictures[0], pictures[1]);
}

TEST(WaferRun, ChecksItsLogitsAgainstTheCpu) {
  const ProgramResult result = run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "3", "--check", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto check = nlohmann::json::parse(result.out)["check"];
  EXPECT_EQ(check["rows"], 3);
  EXPECT_EQ(check["same_token"], 3);
  EXPECT_LT(check["largest_difference"], 5e-5 * check["largest_logit"].get<double>());  // wafer_model_test's bound
  EXPECT_GT(check["largest_difference"],
            0);  // sums are taken in another order, so that nothing was compared with itself
}

// Synthetic weights, with half of the cores' tiles padding: the same path as the recorded run of a larger model.
void expect_the_cpus_logits(const nlohmann::json& check, std::int64_t rows) {
  EXPECT_EQ(check["rows"], rows);
  EXPECT_EQ(check["same_token"], rows);
  EXPECT_LT(check["largest_difference"], 5e-5 * check["largest_logit"].get<double>());  // wafer_model_test's bound
  EXPECT_GT(check["largest_difference"], 0);
}

TEST(WaferRun, ASyntheticModelsLogitsAreTheCpus) {
  const ProgramResult result = run_heddle({"wafer", "run", "--model", "synth:tiny", "--mesh", "12", "--prompt",
                                           "A wafer is a mesh of cores.", "--max-tokens", "4", "--check", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  expect_the_cpus_logits(nlohmann::json::parse(result.out)["check"], 4);
}

// Two layers of llama-3-8b on 360 x 360: a minute of two processors, and 8 GB. The record in bench/results is checked in
// any case.
TEST(WaferRun, TwoLayersOfLlama3On360x360AreTheCpus) {
  const auto record = nlohmann::json::parse(
      read_file(std::string(HEDDLE_SOURCE_DIR) + "/bench/results/wafer-run-llama-3-8b-2-layers.json", 1 << 20));
  EXPECT_EQ(record["result"]["mesh"], nlohmann::json({360, 360}));
  EXPECT_GE(record["result"]["prompt_tokens"], 256);
  expect_the_cpus_logits(record["result"]["check"], 4);
  if (std::getenv("HEDDLE_LARGE_TESTS") == nullptr)
    GTEST_SKIP() << "the record alone was looked at; HEDDLE_LARGE_TESTS=1 runs it again";
  std::vector<std::string> arguments = record["command"];
  arguments.erase(arguments.begin());  // heddle
  const ProgramResult result = run_heddle(arguments, {.limit = std::chrono::minutes(30)});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto again = nlohmann::json::parse(result.out);
  expect_the_cpus_logits(again["check"], 4);
  EXPECT_EQ(again["tokens"], record["result"]["tokens"]);
  for (const char* phase : {"prefill", "last_token"})
    for (const auto& [part, cycles] : record["result"][phase]["breakdown"].items())
      EXPECT_DOUBLE_EQ(again[phase]["breakdown"][part], cycles) << phase << ", " << part;
}

TEST(WaferRun, TokensAreShownAsTheyCome) {
  bool came_before_the_end = false;  // a token, and not yet the summary
  ProgramOptions options;
  options.on_output = [&](int, const std::string& out) {
    if (out.find(" cycles  \"") != std::string::npos && out.find("prefill   ") == std::string::npos)
      came_before_the_end = true;
  };
  const ProgramResult result =
      run_heddle(run_of({"--prompt", "Once upon a time", "--max-tokens", "40"}, "16"), options);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(came_before_the_end);
}

TEST(WaferRun, WarnsOfMeshesWhosePlacesAreMany) {
  const ProgramResult near_square = run_heddle(run_of({"--prompt", "hello", "--max-tokens", "1"}, "7x8"));
  ASSERT_EQ(near_square.status, 0) << near_square.err;
  EXPECT_THAT(near_square.err, HasSubstr("56 x 56 places, 56 a core"));
  EXPECT_THAT(near_square.err, testing::ContainsRegex("[0-9]+ times as long as on 7 x 7"));
  const ProgramResult square = run_heddle(run_of({"--prompt", "hello", "--max-tokens", "1"}, "7"));
  EXPECT_EQ(square.err.find("warning"), std::string::npos) << square.err;
}

TEST(WaferRun, RegionsShareTheLayersAndSayTheSame) {
  std::vector<nlohmann::json> runs;
  for (const char* regions : {"1", "3"}) {
    const ProgramResult result =
        run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "4", "--regions", regions, "--json"}, "16"));
    ASSERT_EQ(result.status, 0) << result.err;
    runs.push_back(nlohmann::json::parse(result.out));
  }
  EXPECT_EQ(runs[0]["tokens"], runs[1]["tokens"]);
  EXPECT_EQ(runs[1]["regions"], 3);
  EXPECT_GT(runs[1]["decode_cycles"], runs[0]["decode_cycles"]);
  EXPECT_GT(runs[1]["last_token"]["breakdown"]["hand-over"], 0);
  EXPECT_EQ(runs[1]["basis"]["last_token"]["breakdown"]["way to the next region"], "simulated + analytical");
  EXPECT_GT(runs[1]["kv_capacity_tokens"], runs[0]["kv_capacity_tokens"]);
  EXPECT_NEAR(runs[1]["idle_share"], 2.0 / 3, 0.01);
}

TEST(WaferRun, RefusesWhatDoesNotFitWithTheNumbers) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const Case cases[] = {
      {run_of({"--prompt", "x"}, "2"), "3"},
      {run_of({"--prompt", "x"}, "4"),
       "the smallest square mesh that would do is 7 x 7"},  // a layer's weights exceed 16 cores
      {run_of({"--prompt", "x", "--max-tokens", "600"}), "context is 512"},
      {run_of({"--prompt", "x", "--device", "none"}), "none"},
      {run_of({"--prompt", "x", "--max-tokens", "0"}), "--max-tokens"},
      {run_of({"--prompt", "x", "--kv", "page"}), "--kv"},
      {run_of({"--prompt", "x"}, "eight"), "--mesh"},
      {{"wafer", "run", "--model", "synth:llama-3-8b", "--mesh", "100", "--prompt", "x", "--max-tokens", "9"},
       "the smallest square mesh that would do is"},  // 32 layers have no 34 regions
      {run_of({"--prompt", "x", "--regions", "1", "--max-tokens", "4"}), "regions would do"},
      {run_of({"--prompt", "x"}, "10x997"), "750 x 994"},
      {run_of({"--prompt", "x", "--regions", "7"}), "7 regions share 6 layers"},
      {run_of({"--prompt", "x", "--regions", "1", "--max-tokens", "4"}), "core (0, 0) of 8 x 8, "},
      {run_of({"--prompt", "x", "--regions", "3"}, "740"), "make 1"},
  };
  for (const Case& test : cases) {
    const ProgramResult result = run_heddle(test.arguments);
    EXPECT_EQ(result.status, 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(test.message));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace heddle
