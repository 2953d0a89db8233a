// One model on ranks that are processes: heddle launch -n N -- heddle generate ...
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/sanitizer.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

// mpirun's own leaks end a run under sanitizers.
#if HEDDLE_MPI && !HEDDLE_ADDRESS_SANITIZER && !HEDDLE_THREAD_SANITIZER

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words joined(std::initializer_list<Words> parts) {
  Words all;
  for (const Words& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// With a folder of its own: runs that start together fail now and then to make Open MPI's.
ProgramResult launch(int ranks, const Words& command) {
  const TemporaryFolder session;
  return run_heddle(joined({{"launch", "-n", std::to_string(ranks), "--"}, command}),
                    {.environment = {{"OMPI_MCA_orte_tmpdir_base", session.path().string()}}});
}

// Runs `heddle ARGUMENTS` on every rank; rank 1 with `of_rank_1` behind them.
ProgramResult launch_with(int ranks, const std::string& arguments, const std::string& of_rank_1) {
  const std::string command = std::string("exec " HEDDLE_PROGRAM " ") + arguments +
                              " $([ $OMPI_COMM_WORLD_RANK != 1 ] || echo \"" + of_rank_1 + "\")";
  return launch(ranks, {"sh", "-c", command});
}

// A run that fails spends seconds in waiting for its launcher: several of them share these.
std::future<ProgramResult> at_once(std::function<ProgramResult()> run) {
  return std::async(std::launch::async, std::move(run));
}

// The lines of ranks that end with an error.
std::vector<std::string> errors_in(const std::string& text) {
  std::vector<std::string> errors;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("heddle: error: ")) errors.push_back(line);
  return errors;
}

std::string one_sum() {
  return "generate " + demo_model().string() + " --prompt '137 + 254 =' --temperature 0 --device cpu";
}

class OnFabric {
 public:
  explicit OnFabric(const char* name, const char* memory = nullptr) {
    ::setenv("HEDDLE_FABRIC", name, 1);
    if (memory != nullptr) ::setenv("HEDDLE_MPI_MEMORY", memory, 1);
  }
  ~OnFabric() {
    ::unsetenv("HEDDLE_FABRIC");
    ::unsetenv("HEDDLE_MPI_MEMORY");
  }
};

TEST(Processes, TextsAreThoseOfOneRank) {
  const Words generate{"generate", demo_model().string(), "--prompt", "sort: 9 4 7 ->", "-n", "3",        "--seed",
                       "7",        "--temperature",       "0.9",      "--top-k",        "20", "--device", "cpu"};
  const ProgramResult alone = run_heddle(generate);
  ASSERT_EQ(alone.status, 0) << alone.err;
  for (const int ranks : {2, 3}) {
    const ProgramResult result = launch(ranks, joined({{"heddle"}, generate}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, alone.out) << ranks;
  }
}

// As between machines.
TEST(Processes, TextsOverMessagesAreThoseOfOneRank) {
  const OnFabric messages("mpi", "window");
  const Words generate{"generate", demo_model().string(), "--prompt", "137 + 254 =", "--temperature", "0", "--device",
                       "cpu"};
  const ProgramResult result = launch(2, joined({{"heddle"}, generate, {"--tp", "2"}}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, run_heddle(generate).out);
}

TEST(Processes, ScoresAreThoseOfOneRank) {
  const Words score{"score", demo_model().string(), "--text", "137 + 254 = 391", "--json", "--device", "cpu"};
  const ProgramResult parts = launch(2, joined({{"heddle"}, score}));
  ASSERT_EQ(parts.status, 0) << parts.err;
  const auto alone = nlohmann::json::parse(run_heddle(score).out);
  EXPECT_NEAR(nlohmann::json::parse(parts.out)["perplexity"].get<double>(), alone["perplexity"].get<double>(), 1e-3);
}

// Rank 1 finds no store, and would have another mode, of other memory.
TEST(Processes, WhatWasTunedForRank0HoldsForAllRanks) {
  const TemporaryFolder folder;
  ::setenv("HEDDLE_CACHE_DIR", folder.path().c_str(), 1);
  const ProgramResult tuned = run_heddle({"tune", "token-weave", "--model", demo_model().string(), "--tp", "2",
                                          "--device", "cpu", "--tokens", "32", "--repeats", "5"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const auto store = folder.path() / "tuned.json";
  std::string found =
      std::regex_replace(read_file(store, 1 << 20), std::regex("(\"token_weave[^\"]*\": *)[0-9.]+"), "$0116");
  found = std::regex_replace(found, std::regex("(\"sums[^\"]*\": *)\\[[^\\]]*\\]"), "$01[{\"form\": \"fused\"}]");
  write_file(store, found);
  const std::string generate = "generate " + demo_model().string() + " --prompt '" + std::string(40, '7') +
                               "' --temperature 0 -n 1 --max-tokens 8 --device cpu --verbose";
  const ProgramResult result = launch(
      2, {"sh", "-c",
          "[ $OMPI_COMM_WORLD_RANK = 0 ] || export HEDDLE_CACHE_DIR=/nowhere; exec " HEDDLE_PROGRAM " " + generate});
  ::unsetenv("HEDDLE_CACHE_DIR");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("--tp-mode weave"), HasSubstr("norm in one operator"),
                                HasSubstr("steps of 16 tokens or more")));
}

TEST(Processes, TuningIsRefusedByName) {
  const Words kinds{"token-weave", "sums", "decode"};
  std::vector<std::future<ProgramResult>> results;
  for (const std::string& what : kinds)
    results.push_back(at_once([&what] {
      return launch(2, {"heddle", "tune", what, demo_model().string(), "--device", "cpu"});
    }));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const ProgramResult result = results[i].get();
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("heddle tune " + kinds[i] + " does not run on the processes of heddle launch"));
  }
}

TEST(Processes, RanksThatDifferAreRefusedWithTheRankAndItsValue) {
  struct Case {
    std::string of_rank_1;
    std::string message;
  };
  const Case cases[] = {
      {"--dtype float16", "rank 1 has --dtype float16, rank 0 has --dtype auto: the ranks of a model need the same"},
      {"--compute float32", "rank 1 has --compute float32, rank 0 has --compute auto"},
      {"--tp-mode symmetric", "rank 1 has --tp-mode symmetric, rank 0 has --tp-mode auto"},
      // Whose ranks would have symmetric memory of another size.
      {"--tp-mode fused", "rank 1 has --tp-mode fused, rank 0 has --tp-mode auto"},
      {"--tp-mode sequence", "rank 1 has --tp-mode sequence, rank 0 has --tp-mode auto"},
      {"--context 100", "rank 1 has --context 100, rank 0 has --context default"},
  };
  std::vector<std::future<ProgramResult>> results;
  for (const Case& c : cases) results.push_back(at_once([&c] { return launch_with(2, one_sum(), c.of_rank_1); }));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const ProgramResult result = results[i].get();
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr("heddle: error: "), HasSubstr(cases[i].message)));
  }
}

// As between machines, where ranks have messages alone.
TEST(Processes, AModeThatTheFabricCannotCarryIsRefusedByItsName) {
  const OnFabric messages("mpi", "window");
  const Words modes{"symmetric", "fused", "weave", "sequence"};
  std::vector<std::future<ProgramResult>> results;
  for (const std::string& mode : modes)
    results.push_back(at_once([&mode] {
      return launch(2, {"sh", "-c", "exec " HEDDLE_PROGRAM " " + one_sum() + " --tp-mode " + mode});
    }));
  for (const std::string& mode : modes) {
    const ProgramResult result = results[static_cast<std::size_t>(&mode - modes.data())].get();
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--tp-mode " + mode + ": ranks need to reach each other's memory"));
  }
}

TEST(Processes, RanksOfAnotherModelAreRefused) {
  const ProgramResult result =
      launch(2, {"sh", "-c",
                 std::string("exec " HEDDLE_PROGRAM " generate --prompt 1 --device cpu --model "
                             "$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo synth:tiny || echo synth:tiny,layers=1)")});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 has config.json "));
}

// Of the same config.json and shapes: the last element of the last tensor is another.
TEST(Processes, RanksWhoseWeightsDifferAreRefused) {
  const TemporaryFolder folder;
  const std::string other = (folder.path() / "model").string();
  const ProgramResult result = launch(
      2, {"sh", "-c",
          "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then cp -r " + demo_model().string() + " " + other + "; cd " + other +
              "; printf '\\101' | dd of=model.safetensors bs=1 conv=notrunc seek=$(($(stat -c %s "
              "model.safetensors) - 1)) 2>/dev/null; fi; exec " HEDDLE_PROGRAM
              " generate --prompt 1 --device cpu --model $([ $OMPI_COMM_WORLD_RANK = 0 ] && echo " +
              demo_model().string() + " || echo " + other + ")"});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 has weights "));
}

TEST(Processes, RanksOfAnotherBinaryAreRefused) {
  const TemporaryFolder folder;
  const std::string other = (folder.path() / "heddle").string();
  const ProgramResult result =
      launch(2, {"sh", "-c",
                 "[ $OMPI_COMM_WORLD_RANK = 0 ] || { cp " HEDDLE_PROGRAM " " + other + "; echo >>" + other +
                     "; }; exec $([ $OMPI_COMM_WORLD_RANK = 0 ] && echo " HEDDLE_PROGRAM " || echo " + other + ") " +
                     one_sum()});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 has program "));
}

TEST(Processes, WhatDoesNotSuitARunIsRefused) {
  const std::string demo = demo_model().string();
  auto on_three = at_once([] { return launch(2, {"sh", "-c", "exec " HEDDLE_PROGRAM " " + one_sum() + " --tp 3"}); });
  auto served = at_once([&] { return launch(2, {"heddle", "serve", demo, "--port", "0"}); });
  auto on_gpus = at_once([&] {
    return launch(2, {"heddle", "generate", demo, "--prompt", "1", "--device", "cuda:0,cuda:1"});
  });
  auto on_many = at_once([] { return launch(9, {"sh", "-c", "exec " HEDDLE_PROGRAM " " + one_sum()}); });
  const auto expect_refused = [](const ProgramResult& result, const std::string& message) {
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  expect_refused(on_three.get(), "--tp 3 in a run of 2 ranks");
  expect_refused(served.get(), "heddle serve does not run on the processes of heddle launch");
  expect_refused(on_gpus.get(), "ranks that are processes run on the CPU alone");
  expect_refused(on_many.get(), "9 ranks, but the model has 8 attention heads");
}

// Rank 1 is killed once rank 0 has written answers; rank 0 must not wait for its deadline. The shell around rank 1 stays,
// as mpirun would end rank 0 with it.
TEST(Processes, AKilledRankIsNamed) {
  const TemporaryFolder folder;
  const std::string answers = (folder.path() / "answers").string();
  const std::string endless = std::string(HEDDLE_PROGRAM " generate --model ") + demo_model().string() +
                              " --prompt Once -n 5000 --temperature 3 --max-tokens 40 --device cpu --quiet";
  const ProgramResult result = launch(
      2, {"sh", "-c",
          "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then exec " + endless + " >" + answers + "; fi; " + endless +
              " & for i in $(seq 300); do [ -s " + answers + " ] && break; sleep 0.1; done; kill -9 $!; sleep 30"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 1 (process "));
}

// Rank 1 is killed when rank 0 has answered and nobody types any more.
TEST(Processes, ARankThatIsKilledWhileNobodyTypesIsNamed) {
  const TemporaryFolder folder;
  const std::string answers = (folder.path() / "answers").string(), typed = (folder.path() / "typed").string();
  const std::string chat = std::string(HEDDLE_PROGRAM " chat --model ") + demo_model().string() + " --device cpu";
  const ProgramResult result = launch(
      2, {"sh", "-c",
          "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then mkfifo " + typed + "; exec 3<>" + typed +
              "; echo '137 + 254 =' >&3; exec " + chat + " <" + typed + " >" + answers + "; fi; " + chat +
              " & for i in $(seq 300); do [ -s " + answers + " ] && break; sleep 0.1; done; kill -9 $!; sleep 30"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 (process "), HasSubstr("has ended")));
}

// Rank 1 may have 150 MB of its own, and half of the embedding takes 263. Each rank says so in the same words.
TEST(Processes, ARankWithoutMemoryIsNamedByAllRanksWithItsCause) {
  const ProgramResult result =
      launch(2, {"sh", "-c",
                 "[ $OMPI_COMM_WORLD_RANK = 0 ] || ulimit -d 150000; exec " HEDDLE_PROGRAM
                 " generate --model synth:llama-3.2-1b,layers=1 --prompt 1 --max-tokens 1 --kv-memory 64MB "
                 "--device cpu --threads 1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_FALSE(errors_in(result.err).empty())
      << result.err;  // on a busy machine mpirun may end rank 0 before it speaks
  for (const std::string& error : errors_in(result.err)) {
    EXPECT_THAT(error, HasSubstr("heddle: error: rank 1: cannot allocate "));
    EXPECT_EQ(error, errors_in(result.err).front());
  }
}

// Nobody but its launcher knows that rank 1 has been there, which need not wait for others to name it.
TEST(Processes, ARankThatIsKilledBeforeTheRanksHaveMetEndsTheRunSoon) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result =
      launch(2, {"sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 0 ] || kill -9 $$; exec " HEDDLE_PROGRAM " " + one_sum()});
  EXPECT_EQ(result.status, 137);
  EXPECT_THAT(result.err, HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25)) << "others would get 30 s";
}

// As one process: 130, and one sentence.
TEST(Processes, AnInterruptedRunEndsAsAnInterruptedProcess) {
  struct Case {
    int signal;
    int status;
  };
  const Case cases[] = {{SIGINT, 130}, {SIGTERM, 143}};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::future<ProgramResult>> results;
  for (const Case& c : cases)
    results.push_back(at_once([&c] {
      bool sent = false;
      return run_heddle({"launch", "-n", "2", "--", "heddle", "generate", demo_model().string(), "--prompt", "Once",
                         "-n", "5000", "--temperature", "3", "--max-tokens", "40", "--device", "cpu", "--quiet"},
                        {.on_output = [&c, &sent](int pid, const std::string&) {
                          if (!std::exchange(sent, true)) ::kill(pid, c.signal);
                        }});
    }));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const ProgramResult result = results[i].get();
    EXPECT_EQ(result.status, cases[i].status);
    EXPECT_TRUE(
        std::regex_match(result.err, std::regex("heddle: interrupted; [0-9]+ of 5000 answers were not finished\n")))
        << result.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
  }
}

// The second Ctrl-C ends what takes no notice of the first.
TEST(Processes, ARunThatIsInterruptedTwiceEnds) {
  int sent = 0;
  const ProgramResult result = run_heddle(
      {"launch", "-n", "2", "--", "sh", "-c", "trap '' INT; echo here; for i in $(seq 600); do sleep 0.1; done"},
      {.on_output = [&](int pid, const std::string&) {
        if (std::exchange(sent, 1) == 1) return;
        ::kill(pid, SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        ::kill(pid, SIGINT);
      }});
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "heddle: interrupted: all ranks have ended\n");
}

TEST(Processes, ARankWithoutItsModelIsNamedAndNobodyElseSpeaks) {
  const ProgramResult result =
      launch(2, {"sh", "-c",
                 std::string("exec " HEDDLE_PROGRAM " generate --prompt 1 --device cpu --model "
                             "$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo ") +
                     demo_model().string() + " || echo /no/such)"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(
      result.err,
      "heddle: error: rank 1: /no/such: no such folder. Give the folder that holds config.json and the weights\n");
}

TEST(Processes, RanksOfOtherCommandsOrPromptsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"generate --prompt $OMPI_COMM_WORLD_RANK", "rank 1 has --prompt 1, rank 0 has --prompt 0"},
      {"generate --prompt 1 $([ $OMPI_COMM_WORLD_RANK = 0 ] || echo --seed 7)",
       "rank 1 has --seed 7, rank 0 has no --seed"},
      {"$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo generate --prompt 1 || echo score --text 1)",
       "rank 1 has command score, rank 0 has command generate"}};
  std::vector<std::future<ProgramResult>> results;
  for (const auto& each : cases)
    results.push_back(at_once([command = each.first] {
      return launch(
          2, {"sh", "-c",
              std::string("exec " HEDDLE_PROGRAM " ") + command + " --device cpu --model " + demo_model().string()});
    }));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const ProgramResult result = results[i].get();
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err, std::string("heddle: error: ") + cases[i].second + ": the ranks of a model need the same\n");
  }
}

}  // namespace
}  // namespace heddle

#endif
