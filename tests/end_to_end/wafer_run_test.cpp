// heddle wafer run: the demo model on a simulated wafer.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
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
    EXPECT_EQ(object["tokens"].size(), object["token_cycles"].size());
    for (const auto& cycles : object["token_cycles"]) EXPECT_GT(cycles.get<double>(), 100);
  }
}

TEST(WaferRun, PrintsEachTokenWithItsCyclesAndDrawsTheCache) {
  const TemporaryFolder folder;
  const std::string picture = (folder.path() / "kv.png").string();
  const ProgramResult result =
      run_heddle(run_of({"--prompt", "12 + 30 =", "--max-tokens", "4", "--kv", "concat", "--heatmap", picture}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" cycles  \""));
  EXPECT_THAT(result.out, HasSubstr("in the fullest of 8 rows"));
  EXPECT_THAT(read_file(picture, 1 << 20), StartsWith("\x89PNG"));
}

TEST(WaferRun, KvDrawsTheCacheOfAModelThatIsNotThere) {
  const TemporaryFolder folder;
  for (const std::string method : {"shift", "concat"}) {
    const std::string picture = (folder.path() / (method + ".png")).string();
    const ProgramResult result = run_heddle({"wafer", "kv", "--model", "llama-3-8b", "--heatmap", picture, "--kv",
                                             method, "--context", "4096", "--tokens", "2048"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(read_file(picture, 1 << 20), StartsWith("\x89PNG"));
  }
}

TEST(WaferRun, RefusesWhatDoesNotFitWithTheNumbers) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const Case cases[] = {
      {run_of({"--prompt", "x"}, "2"), "3"},
      {run_of({"--prompt", "x"}, "4"), "bytes"},  // a layer's weights exceed 16 cores
      {run_of({"--prompt", "x", "--max-tokens", "600"}), "context is 512"},
      {run_of({"--prompt", "x", "--device", "none"}), "none"},
      {run_of({"--prompt", "x", "--max-tokens", "0"}), "--max-tokens"},
      {run_of({"--prompt", "x", "--kv", "page"}), "--kv"},
      {run_of({"--prompt", "x"}, "eight"), "--mesh"},
      {{"wafer", "run", "--model", "synth:llama-3-8b", "--mesh", "100", "--prompt", "x"}, "34 regions would do"},
      {run_of({"--prompt", "x"}, "10x997"), "750 x 994"},
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
