// heddle wafer as a user runs it: the contents of its JSON, and its errors.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;
using Arguments = std::vector<std::string>;

ProgramResult run_wafer(Arguments arguments) {
  arguments.insert(arguments.begin(), "wafer");
  return run_heddle(arguments);
}

json wafer_json(Arguments arguments) {
  arguments.emplace_back("--json");
  const ProgramResult result = run_wafer(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out);
}

void expect_keys(const json& object, const Arguments& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << key;
}

double sum_of(const json& parts) {
  double sum = 0;
  for (const json& part : parts) sum += part.get<double>();
  return sum;
}

TEST(WaferPredict, GivesThroughputPartsMemoryAndRange) {
  for (const char* phase : {"prefill", "decode", "end-to-end"})
    for (const char* method : {"waferllm", "t10", "ladder"}) {
      const json p = wafer_json({"predict", "--model", "llama-3-8b", "--phase", phase, "--method", method});
      expect_keys(p, {"tokens_per_s", "cycles", "breakdown", "memory_bytes_per_core", "routes", "regions", "energy_j",
                      "range"});
      EXPECT_NEAR(sum_of(p["breakdown"]), p["cycles"].get<double>(), 1e-9 * p["cycles"].get<double>());
      EXPECT_LE(p["range"][0], p["tokens_per_s"]);
      EXPECT_GE(p["range"][1], p["tokens_per_s"]);
      expect_keys(p, {"regions_side_by_side", "kv_bytes_per_core", "warnings"});
      EXPECT_EQ(p.contains("ignores_as_published"), std::string(method) != "waferllm");
      ASSERT_EQ(p.contains("tokens_per_s_by_sync"), std::string(method) == "waferllm");
      if (!p.contains("tokens_per_s_by_sync")) continue;
      EXPECT_EQ(p["tokens_per_s_by_sync"]["dataflow"], p["tokens_per_s"]);
      EXPECT_GE(p["tokens_per_s_by_sync"]["dataflow"], p["tokens_per_s_by_sync"]["rendezvous"]);
      EXPECT_GE(p["tokens_per_s_by_sync"]["rendezvous"], p["tokens_per_s_by_sync"]["barrier"]);
    }
}

TEST(WaferPredict, MeshesAreTheUsersOrThePapers) {
  EXPECT_THAT(wafer_json({"predict", "--model", "llama-3-8b", "--phase", "decode", "--mesh", "420x500"})["mesh"],
              ElementsAre(420, 500));
  const json both = wafer_json({"predict", "--model", "llama-2-13b", "--phase", "end-to-end", "--in", "2048", "--out",
                                "2048", "--prefill-mesh", "740"});
  EXPECT_THAT(both["prefill_mesh"], ElementsAre(740, 740));
  EXPECT_THAT(both["decode_mesh"], ElementsAre(375, 375));
}

TEST(WaferPredict, TakesAnyConfigOfHuggingFace) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "config.json").string();
  write_file(file, R"({"architectures": ["SomebodysForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256})");
  const Arguments rest{"--phase", "decode", "--mesh", "420"};
  Arguments by_file{"predict", "--model", file}, by_name{"predict", "--model", "llama-3-8b"};
  by_file.insert(by_file.end(), rest.begin(), rest.end());
  by_name.insert(by_name.end(), rest.begin(), rest.end());
  EXPECT_EQ(wafer_json(by_file)["tokens_per_s"], wafer_json(by_name)["tokens_per_s"]);
  write_file(file, R"({"architectures": ["SomebodysForCausalLM"], "hidden_size": 4096})");
  const ProgramResult refused = run_wafer({"predict", "--model", file});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("num_hidden_layers"));
}

// Baselines do not move to other cores for decode.
TEST(WaferPredict, BaselinesDecodeWhereTheyPrefilled) {
  const json p = wafer_json({"predict", "--model", "llama-3-8b", "--phase", "end-to-end", "--method", "t10"});
  EXPECT_EQ(p["decode_mesh"], p["prefill_mesh"]);
  EXPECT_EQ(p["breakdown"]["transition"], 0);
}

TEST(WaferPredict, RefusesConfigurationsThatItsCostsDoNotKnow) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "config.json").string();
  const std::string rest =
      R"("hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128256)";
  const std::pair<std::string, const char*> configs[] = {
      {R"("num_attention_heads": 32, "num_key_value_heads": 7)", "num_key_value_heads is 7"},
      {R"("num_attention_heads": 30)", "no multiple of num_attention_heads"},
      {R"("num_attention_heads": 32, "model_type": "deepseek_v3", "num_local_experts": 8, "num_experts_per_tok": 2)",
       "deepseek_v3"},
      {R"("num_attention_heads": 32, "architectures": ["JambaForCausalLM"], "num_local_experts": 8,
          "num_experts_per_tok": 2)",
       "MixtralForCausalLM"},
      {R"("num_attention_heads": 32, "kv_lora_rank": 512)", "kv_lora_rank"},
  };
  for (const auto& [fields, says] : configs) {
    write_file(file, "{" + rest + ", " + fields + "}");
    const ProgramResult refused = run_wafer({"predict", "--model", file});
    EXPECT_EQ(refused.status, 2) << fields;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("config.json"), HasSubstr(says)));
  }
}

TEST(WaferProducts, GiveTimeAndAllSynchronisations) {
  for (const Arguments& arguments : {Arguments{"gemm", "--n", "4096", "--method", "cannon", "--sync", "barrier"},
                                     Arguments{"gemv", "--n", "16384", "--sync", "rendezvous"},
                                     Arguments{"gemv", "--n", "4096", "--mesh", "360x240", "--method", "pipeline"}}) {
    const json product = wafer_json(arguments);
    expect_keys(product, {"microseconds", "cycles", "breakdown", "memory_bytes_per_core", "routes", "energy_j"});
    const std::string sync = product["sync"];
    EXPECT_EQ(product["microseconds_by_sync"][sync], product["microseconds"]);
    EXPECT_LE(product["microseconds_by_sync"]["dataflow"], product["microseconds_by_sync"]["barrier"]);
  }
  EXPECT_THAT(run_wafer({"gemm", "--n", "2048"}).out,
              AllOf(HasSubstr("dataflow"), HasSubstr("rendezvous"), HasSubstr("barrier")));
  EXPECT_EQ(wafer_json({"gemv", "--n", "4096", "--k", "1"})["phases"], 1);
  EXPECT_FALSE(wafer_json({"gemv", "--n", "4096", "--method", "ring"}).contains("phases"));
  // A baseline has one way to wait, and says nothing of others.
  for (const char* timing : {"closed", "simulated"})
    for (const char* product : {"gemm", "gemv"}) {
      const json of_t10 = wafer_json({product, "--n", "96", "--mesh", "9", "--method", "t10", "--timing", timing});
      for (const char* key : {"sync", "microseconds_by_sync", "phases"}) {
        EXPECT_FALSE(of_t10.contains(key)) << key;
        EXPECT_FALSE(of_t10["basis"].contains(key)) << key;
      }
    }
}

TEST(WaferProducts, RunOnEveryDeviceAndAsSimulatedPrograms) {
  for (const char* device : {"wse-2", "wse-3", "blackhole", "wormhole", "dojo"}) {
    EXPECT_EQ(wafer_json({"gemv", "--n", "2048", "--device", device})["device"], device);
    EXPECT_EQ(wafer_json({"gemm", "--n", "512", "--device", device})["device"], device);
  }
  const Arguments gemm{"gemm", "--n", "256", "--mesh", "32", "--timing"};
  Arguments closed = gemm, simulated = gemm;
  closed.emplace_back("closed");
  simulated.emplace_back("simulated");
  const double by_form = wafer_json(closed)["cycles"], by_program = wafer_json(simulated)["cycles"];
  EXPECT_NEAR(by_program / by_form, 1, 0.1);
}

// Which of them has the fitted constants, and by how much they differ.
TEST(WaferProducts, SayHowABaselinesRunDiffersFromItsFit) {
  for (const char* method : {"t10", "ladder"})
    for (const char* mesh : {"9x12", "40"}) {
      const Arguments gemm{"gemm", "--n", "96", "--mesh", mesh, "--method", method, "--timing"};
      Arguments closed = gemm, simulated = gemm;
      closed.emplace_back("closed");
      simulated.emplace_back("simulated");
      const json fit = wafer_json(closed), run = wafer_json(simulated);
      EXPECT_EQ(fit["basis"]["cycles"], "analytical + fitted");
      const bool is_small = std::string(mesh) == "9x12";
      EXPECT_EQ(run["basis"]["cycles"], is_small ? "simulated + analytical" : "counted + analytical");
      EXPECT_EQ(run["basis"]["hops_and_words_cycles"], is_small ? "simulated" : "counted");
      EXPECT_EQ(run["basis"]["breakdown"]["compute"], "analytical");
      EXPECT_EQ(run["basis"]["energy_j"], "fitted");
      EXPECT_EQ(run.contains("steps"), !is_small);
      EXPECT_EQ(run.contains("at_least_cycles"), !is_small);
      if (!is_small) {
        EXPECT_GT(run["at_least_cycles"], 0.5 * run["cycles"].get<double>());
        EXPECT_LT(run["at_least_cycles"], run["cycles"]);
        EXPECT_EQ(run["steps"], json({{"counted", std::string(method) == "t10" ? 1 : 24}, {"all", 40}}));
        EXPECT_THAT(run["notes"], AllOf(testing::Contains(HasSubstr("words are counted on links")),
                                        testing::Contains(HasSubstr("of the program's 40 steps"))));
      }
      EXPECT_EQ(run["fitted_cycles"], fit["cycles"]);
      EXPECT_DOUBLE_EQ(run["run_over_fit"], run["cycles"].get<double>() / fit["cycles"].get<double>());
      EXPECT_GT(std::abs(std::log(run["run_over_fit"].get<double>())), 0.1) << "the fit is not the run";
    }
}

// Words and hops are the mesh's; what a program's operations, calls and stages take was fitted. A run says what it takes
// without those, and that does not change with them.
TEST(WaferProducts, SayWhatARunTakesWithoutFittedCosts) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "device.json").string();
  write_file(file, R"({"base": "wse-2", "mac_cycles": 2, "call_cycles": 100, "beta_cycles": 3})");
  for (const Arguments& product : {Arguments{"gemm", "--n", "96", "--mesh", "12x18"},
                                   {"gemv", "--m", "50", "--n", "70", "--mesh", "9x7"},
                                   {"gemm", "--n", "96", "--mesh", "12", "--method", "t10"},
                                   {"gemv", "--n", "96", "--mesh", "40", "--method", "ladder"}}) {
    Arguments arguments = product;
    arguments.insert(arguments.end(), {"--timing", "simulated"});
    const json here = wafer_json(arguments);
    arguments.insert(arguments.end(), {"--device", file});
    const json there = wafer_json(arguments);
    EXPECT_DOUBLE_EQ(here["hops_and_words_cycles"], there["hops_and_words_cycles"]);
    // Nothing else is simulated or counted.
    double unfitted = 0;
    for (const auto& [basis, cycles] : here["cycles_by_basis"].items())
      if (basis != "analytical") unfitted += cycles.get<double>();
    EXPECT_DOUBLE_EQ(here["hops_and_words_cycles"], unfitted);
    EXPECT_NE(here["cycles"], there["cycles"]);
    EXPECT_GT(here["hops_and_words_cycles"], 0);
    EXPECT_LT(here["hops_and_words_cycles"], here["cycles"]);
  }
}

TEST(WaferProducts, WarnOfSidesWithALargeCommonMultiple) {
  EXPECT_THAT(wafer_json({"gemm", "--n", "2048", "--mesh", "320x300"})["warnings"],
              testing::Contains(AllOf(HasSubstr("4800 steps"), HasSubstr("300 x 300"))));
  EXPECT_TRUE(wafer_json({"gemm", "--n", "2048", "--mesh", "320"})["warnings"].empty());
}

// The headline has no fitted constant, and what has one says so.
TEST(WaferKv, SaysRegionsAndWhatIsFitted) {
  const json kv = wafer_json({"kv", "--model", "llama-3-8b"});
  EXPECT_EQ(kv["shift_tokens"], 146472);
  EXPECT_EQ(kv["fitted_constants"], 0);
  EXPECT_EQ(kv["basis"], "analytical");
  EXPECT_EQ(kv["fitted"]["concat_tokens"], 382);  // the cell that the reserve was fitted to
  EXPECT_EQ(kv["fitted"]["basis"], "fitted");
  EXPECT_THAT(kv["mesh"], ElementsAre(360, 360));
  expect_keys(kv, {"regions", "beside_bytes_per_core", "free_bytes_per_core"});
  const json roomy = wafer_json({"kv", "--model", "llama-3-8b", "--reserve", "0"});
  EXPECT_GT(roomy["concat_tokens"], 382);
  EXPECT_EQ(roomy["basis"], "analytical");
  const json fitted = wafer_json({"kv", "--model", "llama-3-8b", "--reserve", "8016"});
  EXPECT_EQ(fitted["basis"], "fitted");
  EXPECT_EQ(fitted["concat_tokens"], 382);
  EXPECT_THAT(run_wafer({"kv", "--model", "llama-3-8b"}).out,
              testing::ContainsRegex("\nfitted +382 concatenated, 137548 shifted.*fitted to the paper's cell"));
  EXPECT_EQ(kv["regions"], 6);  // by cores
  EXPECT_EQ(kv["side_by_side"]["regions"], 4);
  EXPECT_LT(kv["side_by_side"]["shift_tokens"], kv["shift_tokens"]);
  EXPECT_EQ(kv["side_by_side"]["shift_tokens"],
            wafer_json({"kv", "--model", "llama-3-8b", "--regions", "4"})["shift_tokens"]);
  EXPECT_EQ(kv["run"]["regions"], 4);
}

// Where the embedding fills a region, layers in fractions have room: the headline says which way it is.
TEST(WaferKv, TakesTheFirstWayWithRoomThatHasNoFittedConstant) {
  const json kv = wafer_json({"kv", "--model", "llama-3-8b", "--mesh", "120"});
  EXPECT_EQ(kv["reckonings"][0]["shift_tokens"], 0);
  EXPECT_GT(kv["shift_tokens"], 0);
  EXPECT_EQ(kv["fitted_constants"], 0);
  EXPECT_FALSE(kv["whole_layers"]);
  EXPECT_THAT(run_wafer({"kv", "--model", "llama-3-8b", "--mesh", "120"}).out, HasSubstr("layers in fractions"));
}

TEST(WaferKv, ShowsEachWayToAccountAndWhatItsTable5Takes) {
  const json kv = wafer_json({"kv", "--model", "llama-3-8b"});
  ASSERT_EQ(kv["reckonings"].size(), 8u);
  for (const json& way : kv["reckonings"])
    if (way["fitted_constants"] == 1 && !way["whole_layers"] && !way["tables_on_cores"]) {
      EXPECT_EQ(way["shift_tokens"], kv["fitted"]["shift_tokens"]);
      EXPECT_EQ(way["basis"], "fitted");
    }
  EXPECT_EQ(kv["reckonings"][0]["fitted_constants"], 0);
  EXPECT_EQ(kv["reckonings"][0]["shift_tokens"], kv["shift_tokens"]);
  const json tables = wafer_json({"tables"});
  for (const json& cell : tables["cells"])
    if (cell["table"] == 5 && cell["row"] == "llama-3-8b" && cell["column"] == "shift tokens, 6 regions") {
      EXPECT_EQ(cell["predicted"], kv["reckonings"][0]["shift_tokens"]);
    }
}

// Section 8 says that five to six times the memory end pipelines: the least multiple with one region.
TEST(WaferSweep, FindsTheMemoryThatEndsPipelines) {
  for (const auto& [model, times] : {std::pair{"llama-3-8b", 3}, {"llama-2-13b", 5}, {"codellama-34b", 11}}) {
    const json rows = wafer_json({"sweep", "--model", model, "--from", "360", "--to", "360", "--sram-times",
                                  "1,2,3,4,5,6,7,8,9,10,11,12"})["rows"];
    ASSERT_EQ(rows.size(), 12u);
    int least = 0;
    for (const json& row : rows)
      if (row["regions"] == 1 && least == 0) least = static_cast<int>(row["sram_bytes"].get<double>() / 49152);
    EXPECT_EQ(least, times) << model;
  }
}

TEST(WaferSweep, WritesCsvWithConstantsAndCommit) {
  const ProgramResult csv = run_wafer({"sweep", "--model", "llama-3-8b", "--phase", "prefill", "--from", "600", "--to",
                                       "720", "--step", "60", "--csv"});
  ASSERT_EQ(csv.status, 0) << csv.err;
  EXPECT_THAT(csv.out, testing::StartsWith("# heddle "));
  EXPECT_THAT(csv.out, AllOf(HasSubstr(", sram_bytes 49152"),
                             HasSubstr("\nmodel,device,phase,method,context,sync,phases,side,sram_bytes,tokens_per_s,"),
                             HasSubstr("\nllama-3-8b,wse-2,prefill,waferllm,4096,dataflow,,660,49152,")));
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 5);
  const json object = wafer_json({"gemm", "--n", "64", "--mesh", "9", "--sram-bytes", "100000"});
  EXPECT_EQ(object["constants"]["sram_bytes"], 100000);
  expect_keys(object, {"commit"});
  // Tables 3's cells are fitted, what lies between them is not.
  EXPECT_THAT(csv.out, AllOf(HasSubstr(",error,basis,range_basis,memory_basis,area_basis\n"),
                             testing::ContainsRegex(",600,[^\n]*,,fitted,fitted,analytical,analytical\n"),
                             testing::ContainsRegex(",660,[^\n]*,,analytical,fitted,analytical,analytical\n")));
  const json decode =
      wafer_json({"sweep", "--model", "llama-3-8b", "--from", "420", "--to", "420", "--k", "1", "--sync", "barrier"});
  EXPECT_EQ(decode["sync"], "barrier");
  EXPECT_EQ(decode["phases"], 1);
  EXPECT_EQ(decode["rows"][0]["basis"]["tokens_per_s"], "analytical + fitted");
  EXPECT_EQ(decode["rows"][0]["basis"]["memory_bytes_per_core"], "analytical + fitted");
  EXPECT_EQ(decode["rows"][0]["basis"]["high"], "fitted");
  EXPECT_THAT(csv.out, AllOf(HasSubstr(", t10_crossbar 10.6"), HasSubstr(", ladder_sum_weight 0.0237"),
                             HasSubstr(", kv_reserve_bytes 8016")));
  const std::string tables = run_wafer({"tables", "--csv"}).out;
  EXPECT_THAT(
      tables,
      AllOf(HasSubstr("\ntable,row,column,published,predicted,low,high,without_it,error_percent,holds,basis,"
                      "published_basis,counted_percent,analytical_percent,fitted_percent\n"),
            testing::ContainsRegex(
                "\n3,llama-3-8b T10,480 tokens/s,175,178[.0-9]*,[.0-9]+,[.0-9]+,,1.7,,fitted,published,,,\n"),
            testing::ContainsRegex("\n3,llama-2-13b WaferLLM,720 tokens/s,17498.3,[.0-9]+,[.0-9]+,[.0-9]+,[.0-9]+,2.3,,"
                                   "fitted,published,,,\n"),
            testing::ContainsRegex("\n4,qwen2-72b T10,420 tokens/s,,[.0-9]+,[.0-9]+,[.0-9]+,,,,held out,held out,,,\n"),
            testing::ContainsRegex("\ntrend,7.1: qwen2-72b's prefill from 480 to 720,,1.6 x,1.59 x,,,,,yes,analytical "
                                   "\\+ held out,published,,,\n")));
  EXPECT_EQ(run_wafer({"sweep", "llama-3-8b", "--from", "600", "--to", "500"}).status, 2);
}

TEST(WaferProducts, TakeAnyThreeSizes) {
  const auto gemm = [](const std::string& m, const std::string& k, const std::string& n) {
    return wafer_json({"gemm", "--m", m, "--k", k, "--n", n, "--mesh", "8", "--timing", "simulated"});
  };
  const auto priced = [](const std::string& m, const std::string& k, const std::string& n) {
    return wafer_json({"gemm", "--m", m, "--k", k, "--n", n, "--mesh", "8"})["breakdown"]["compute"];
  };
  // Tiles of 2 x 3 x 4: calls are a slice each, so that only k changes the number of calls.
  EXPECT_EQ(priced("16", "24", "32"), priced("32", "24", "16"));
  EXPECT_NE(priced("16", "24", "32"), priced("24", "16", "32"));
  EXPECT_NE(gemm("16", "24", "32")["cycles"], gemm("24", "16", "32")["cycles"]);
  EXPECT_EQ(gemm("16", "24", "32")["memory_bytes_per_core"], 2 * (2 * 2 * 3 + 2 * 3 * 4 + 2 * 4));
  const auto gemv = [](const std::string& m, const std::string& n) {
    return wafer_json({"gemv", "--m", m, "--n", n, "--mesh", "8"});
  };
  EXPECT_GT(gemv("64", "128")["cycles"], gemv("64", "64")["cycles"]);
  EXPECT_EQ(gemv("64", "64")["cycles"], wafer_json({"gemv", "--n", "64", "--mesh", "8"})["cycles"]);
  for (const char* timing : {"closed", "simulated"}) {
    const json batch = wafer_json({"gemv", "--n", "64", "--mesh", "8", "--batch", "4", "--timing", timing});
    EXPECT_EQ(batch["batch"], 4);
    const double one = gemv("64", "64")["breakdown"]["compute"];
    EXPECT_NEAR(batch["breakdown"]["compute"], 4 * one, 1e-9 * one);
    EXPECT_LT(batch["cycles"], 4 * gemv("64", "64")["cycles"].get<double>());
  }
  EXPECT_THAT(run_wafer({"gemv", "--n", "64", "--mesh", "8", "--batch", "4"}).out, HasSubstr("4 x 64 by 64 x 64"));
}

TEST(WaferTune, ChoosesMeshes) {
  const json tuned = wafer_json({"tune", "--model", "llama-3-8b", "--in", "2048", "--out", "128"});
  expect_keys(tuned, {"prefill_mesh", "decode_mesh", "tokens_per_s", "range"});
  // The tuned mesh is what predict reports for it, and no worse than its neighbours or the paper's meshes.
  const auto sides = [](const json& mesh) { return std::pair<int, int>{mesh[0], mesh[1]}; };
  const auto rate = [&](std::pair<int, int> prefill, std::pair<int, int> decode) -> double {
    return wafer_json({"predict", "--model", "llama-3-8b", "--phase", "end-to-end", "--in", "2048", "--out", "128",
                       "--prefill-mesh", fmt::format("{}x{}", prefill.first, prefill.second), "--decode-mesh",
                       fmt::format("{}x{}", decode.first, decode.second)})["tokens_per_s"];
  };
  const auto prefill = sides(tuned["prefill_mesh"]), decode = sides(tuned["decode_mesh"]);
  EXPECT_DOUBLE_EQ(tuned["tokens_per_s"], rate(prefill, decode));
  const std::pair<int, int> larger{prefill.first + 1, prefill.second + 1}, wider{decode.first + 1, decode.second};
  for (const auto& [p, d] : {std::pair{larger, decode}, {prefill, wider}, {std::pair{660, 660}, std::pair{360, 360}}})
    EXPECT_GE(tuned["tokens_per_s"].get<double>(), rate(p, d));
}

TEST(WaferTables, PutPublishedBesidePredicted) {
  const json tables = wafer_json({"tables"});
  std::vector<int> seen(9);
  for (const json& cell : tables["cells"]) {
    ++seen[cell["table"].get<std::size_t>()];
    EXPECT_EQ(cell["published"].is_null(), cell["error_percent"].is_null());
    EXPECT_GT(cell["predicted"], 0);
  }
  const auto bases_of = [&](int table, bool is_seen) {
    std::set<std::string> bases;
    for (const json& cell : tables["cells"])
      if (cell["table"] == table && cell["published"].is_null() != is_seen) {
        bases.insert(cell["basis"]["predicted"]);
        EXPECT_EQ(cell["basis"]["published"], is_seen ? "published" : "held out");
      }
    return bases;
  };
  EXPECT_THAT(bases_of(2, true), ElementsAre("analytical + fitted"));  // decode's residual, the baselines' constants
  EXPECT_THAT(bases_of(5, true), ElementsAre("analytical"));
  for (const int table : {3, 4}) EXPECT_THAT(bases_of(table, true), ElementsAre("fitted")) << table;
  EXPECT_THAT(bases_of(6, true),
              ElementsAre("fitted", "fitted + published"));  // energies have the GPUs' times and watts
  for (const int table : {7, 8}) EXPECT_THAT(bases_of(table, true), ElementsAre("fitted + published")) << table;
  for (const int table : {2, 3, 4, 5, 6}) EXPECT_THAT(bases_of(table, false), ElementsAre("held out")) << table;
  for (const json& trend : tables["trends"]) {
    const bool is_average = trend["statement"].get<std::string>().find("four models") != std::string::npos;
    EXPECT_EQ(trend["basis"]["predicted"] == "fitted + held out", is_average) << trend;
    EXPECT_EQ(trend["basis"]["published"], "published");
    if (trend["statement"] == "MeshGEMM over Cannon (2K at 600 and 720, barriers)") {  // 3.5 is not 2 to 3
      EXPECT_EQ(trend["predicted"], "2.3 and 3.5 x");
      EXPECT_FALSE(trend["holds"]);
    }
  }
  // The thirteen cells of the fit are also predicted by the fit to the twelve others: near, and not by the same number.
  int left_out = 0;
  for (const json& cell : tables["cells"]) {
    if (cell["predicted_without_it"].is_null()) continue;
    ++left_out;
    const double without = cell["predicted_without_it"], published = cell["published"];
    EXPECT_NE(cell["predicted"], without) << cell;
    EXPECT_NEAR(without / published, 1, cell["table"] == 6 ? 0.08 : 0.0325) << cell;
    EXPECT_GE(std::abs(without / published - 1) + 1e-3, std::abs(cell["error_percent"].get<double>()) / 100) << cell;
  }
  EXPECT_EQ(left_out, 13);
  for (int table = 2; table <= 8; ++table) EXPECT_GT(seen[static_cast<std::size_t>(table)], 0) << table;
  EXPECT_GE(tables["trends"].size(), 10u);
  std::map<std::string, std::string> complies;
  for (const json& row : tables["compliance"]) complies[row["program"]] = row["complies"];
  EXPECT_THAT(complies, IsSupersetOf({Pair("MeshGEMM", "L M R"), Pair("Cannon", "M R"), Pair("SUMMA", "M"),
                                      Pair("all-gather GEMM", ""), Pair("pipeline all-reduce", "M R"),
                                      Pair("K-tree all-reduce", "L M R"), Pair("T10-like GEMM", "M"),
                                      Pair("Ladder-like GEMM", "M")}));
  // Every known cell, fitted or not, lies in its prediction's range.
  for (const json& cell : tables["cells"]) {
    if (cell["published"].is_null() || cell["range"].is_null()) continue;
    EXPECT_LE(cell["range"][0], cell["published"]) << cell;
    EXPECT_GE(cell["range"][1], cell["published"]) << cell;
  }
  EXPECT_THAT(run_wafer({"tables"}).out, AllOf(HasSubstr("held out"), HasSubstr("fig 9"), HasSubstr("fig 10")));
}

TEST(WaferTables, CallFittedOnlyWhatWasFittedWithTheDevicesConstants) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "device.json").string();
  const auto fitted_cells = [&](const char* device) {
    write_file(file, device);
    const json cells = wafer_json({"tables", "--device", file})["cells"];
    return std::count_if(cells.begin(), cells.end(), [](const json& cell) {
      return cell["basis"]["predicted"].get<std::string>().find("fitted") == 0;
    });
  };
  EXPECT_GT(fitted_cells(R"({"base": "wse-2", "name": "another name"})"), 0);
  EXPECT_EQ(fitted_cells(R"({"base": "wse-2", "clock_ghz": 0.85})"), 0);
  EXPECT_EQ(fitted_cells(R"({"base": "wse-3", "name": "mine"})"), 0);
}

const std::set<std::string> kInputs{
    "n",   "m",     "k",    "batch", "phases", "mesh",    "prefill_mesh", "decode_mesh",   "output",          "in",
    "out", "steps", "line", "table", "side",   "context", "sram_bytes",   "prompt_tokens", "fitted_constants"};
const std::set<std::string> kBasisWords{"simulated", "counted", "analytical", "fitted", "published", "held out"};

bool is_basis(const std::string& text) {
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(" + ", begin);
    if (!kBasisWords.contains(text.substr(begin, end - begin))) return false;
    if (end == std::string::npos) return true;
    begin = end + 3;
  }
}

// Every number has a basis: at its place in the "basis" of the innermost object that has one, of which a text is for all
// below it.
void expect_bases(const json& value, const json& basis, const std::string& path, int& numbers) {
  if (value.is_object()) {
    const json& own = value.contains("basis") ? value["basis"] : basis;
    for (const auto& [key, member] : value.items()) {
      if (key == "basis" || key == "constants" || kInputs.contains(key)) continue;
      expect_bases(member, own.is_object() ? own.value(key, json()) : own, path + "/" + key, numbers);
    }
  } else if (value.is_array()) {
    for (const json& member : value) expect_bases(member, basis, path, numbers);
  } else if (value.is_number()) {
    ++numbers;
    EXPECT_TRUE(basis.is_string() && is_basis(basis)) << path << ": " << basis;
  }
}

TEST(Wafer, EveryNumberOfEveryCommandHasABasis) {
  for (const Arguments& arguments : {
           Arguments{"gemm", "--m", "70", "--k", "33", "--n", "121", "--mesh", "9x12"},
           {"gemm", "--n", "121", "--mesh", "9x12", "--timing", "simulated", "--sync", "barrier"},
           {"gemm", "--n", "121", "--mesh", "9x12", "--timing", "simulated", "--method", "t10"},
           {"gemm", "--n", "121", "--mesh", "50x41", "--timing", "simulated", "--method", "ladder"},
           {"gemm", "--n", "121", "--mesh", "50x41", "--method", "ladder", "--device", "wse-3"},
           {"gemv", "--m", "70", "--n", "121", "--mesh", "9x12", "--batch", "3"},
           {"gemv", "--n", "121", "--mesh", "9x12", "--timing", "simulated", "--method", "ring"},
           {"gemv", "--n", "121", "--mesh", "9x40", "--timing", "simulated", "--method", "ladder"},
           {"predict", "--model", "llama-2-13b", "--phase", "prefill", "--mesh", "600"},
           {"predict", "--model", "llama-2-13b", "--phase", "decode", "--mesh", "413x390", "--sync", "barrier"},
           {"predict", "--model", "qwen2-72b", "--phase", "decode", "--mesh", "420", "--method", "t10"},
           {"predict", "--model", "llama-3-8b", "--phase", "end-to-end", "--in", "77", "--out", "3"},
           {"predict", "--model", "llama-3-8b", "--phase", "prefill", "--method", "ladder", "--device", "wse-3"},
           {"kv", "--model", "llama-2-13b"},
           {"kv", "--model", "mixtral-8x7b", "--mesh", "700", "--sram-bytes", "400000"},
           {"tune", "--model", "llama-3-8b", "--in", "64", "--out", "9"},
           {"sweep", "--model", "llama-3-8b", "--from", "300", "--to", "420", "--step", "60", "--sram-times", "1,4"},
           {"tables"},
           {"run", "--model", demo_model().string(), "--prefill-mesh", "12", "--decode-mesh", "9x10", "--prompt",
            "1 + 1 =", "--max-tokens", "3", "--check"},
       }) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    int numbers = 0;
    expect_bases(wafer_json(arguments), json(), "", numbers);
    EXPECT_GT(numbers, 8);
  }
}

// What a rate is, is a cell's where the work is the cell's, and its parts' elsewhere.
TEST(WaferPredict, SaysFittedOfTheCellsThatWereFittedAlone) {
  const auto basis_of = [](Arguments more) {
    more.insert(more.begin(), {"predict", "--model"});
    const json p = wafer_json(more);
    EXPECT_EQ(p["basis"]["energy_j"], "fitted");
    EXPECT_EQ(p["basis"]["cycles"], p["basis"]["tokens_per_s"]);
    return p["basis"]["tokens_per_s"].get<std::string>();
  };
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "prefill", "--mesh", "600"}), "fitted");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "prefill", "--mesh", "600", "--context", "2048"}), "analytical");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "prefill", "--mesh", "600x300"}), "analytical");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "prefill", "--mesh", "600", "--sram-bytes", "50000"}), "analytical");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "decode", "--mesh", "420", "--sync", "barrier"}), "analytical + fitted");
  EXPECT_EQ(basis_of({"qwen2-72b", "--phase", "prefill", "--mesh", "480"}), "held out");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "end-to-end", "--in", "4096", "--out", "4096"}), "held out");
  EXPECT_EQ(basis_of({"llama-3-8b", "--phase", "end-to-end", "--in", "2048", "--out", "128"}), "analytical + fitted");
}

TEST(Wafer, ConstantsHaveTheBaselinesAndTheReserve) {
  const json constants = wafer_json({"kv", "--model", "llama-3-8b"})["constants"];
  EXPECT_EQ(constants["kv_reserve_bytes"], 8016);
  for (const char* name : {"t10_crossbar", "t10_relay", "ladder_access", "ladder_weight", "ladder_sum_access",
                           "ladder_sum_value", "ladder_sum_weight"}) {
    ASSERT_TRUE(constants.contains(name)) << name;
    EXPECT_GT(constants[name], 0) << name;
  }
  EXPECT_EQ(constants["t10_crossbar_power"], 0.7);
  EXPECT_EQ(constants["ladder_weight_power"], 1.5);
}

struct Refusal {
  Arguments arguments;
  Arguments says;
};

TEST(Wafer, RefusesWithTheNumbersAndStatusTwo) {
  const Refusal refusals[] = {
      {{"gemm", "--n", "4096", "--mesh", "2"}, {"2 x 2", "3 or more"}},
      {{"gemm", "--n", "4096", "--mesh", "720", "--method", "all-gather"}, {"103896", "49152", "too few"}},
      {{"gemm", "--n", "0"}, {"--n", "16777216"}},
      {{"tables", "--csv", "--json"}, {"--csv and --json"}},
      {{"sweep", "llama-3-8b", "--from", "600", "--to", "660", "--csv", "--json"}, {"--csv and --json"}},
      {{"gemm", "--n", "8", "--mesh", "9x"}, {"--mesh", "9x"}},
      {{"gemv", "--n", "4096", "--k", "5"}, {"23 routes", "21"}},
      {{"gemv", "--n", "4096", "--k", "6", "--timing", "simulated"}, {"27 routes", "21"}},
      {{"gemv", "--n", "4096", "--method", "ring", "--k", "3"}, {"--k", "ring"}},
      {{"gemv", "--n", "4096", "--method", "pipeline", "--k", "2"}, {"--k", "pipeline"}},
      {{"gemv", "--n", "4096", "--method", "t10", "--sync", "barrier"}, {"--sync", "t10"}},
      {{"gemv", "--n", "4096", "--method", "ladder", "--batch", "2"}, {"--batch", "ladder"}},
      {{"gemm", "--n", "65536", "--mesh", "100", "--timing", "simulated"}, {"4303360 bytes", "4254208 too few"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "decode", "--k", "3"}, {"29 routes", "21"}},
      {{"predict", "--model", "llama-3-8b", "--mesh", "60"},
       {"decode on 60 x 60: core (0, 0)", "smallest square mesh"}},
      {{"predict", "--model", "llama-3-8b", "--mesh", "2000"}, {"2000 x 2000", "750 x 994"}},
      {{"predict", "--model", "qwen2-72b", "--phase", "end-to-end"}, {"GB", "regions"}},
      {{"predict", "--model", "llama-3-8b", "--mesh", "360", "--context", "200000"}, {"200000", "137548"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "prefill", "--out", "8"}, {"--out", "end-to-end"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "decode", "--prefill-mesh", "660"},
       {"--prefill-mesh", "decode"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "prefill", "--k", "2"}, {"--k", "decode"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "end-to-end", "--in", "8", "--context", "8"},
       {"--in", "--context"}},
      {{"predict", "--model", "llama-3-8b", "--phase", "end-to-end", "--out", "4294967296"}, {"4294971392", "137548"}},
      {{"tune", "--model", "llama-3-8b", "--out", "16777216"}, {"16779264"}},
      {{"tables", "--device", "dojo"}, {"750 x 750", "90 x 95"}},
      {{"tables", "--device", "wse-3"}, {"are of wse-2", "no program was measured on wse-3"}},
      {{"gemm", "--n", "4096", "--mesh", "750x994", "--method", "summa", "--timing", "simulated"}, {"1863750 bytes"}},
      {{"predict", "--model", "gpt-9"}, {"gpt-9", "llama-3-8b"}},
      {{"predict", "--model", "llama-3-8b", "--method", "magic"}, {"--method", "ladder"}},
      {{"kv", "--model", "qwen2-72b"}, {"no square mesh of wse-2 would do", "140.4 GB"}},
      {{"kv", "--model", "llama-3-8b", "--context", "8"}, {"--context", "--heatmap"}},
      {{"kv", "--model", "llama-3-8b", "--kv", "concat", "--tokens", "1000", "--heatmap", "/tmp/never.png"},
       {"--tokens 1000", "594 more", "406"}},
      {{"predict", "--model", "llama-3-8b", "--method", "t10", "--k", "2"}, {"--k", "t10"}},
      {{"kv", "--model", "llama-3-8b", "--device", "abacus"}, {"abacus", "wse-2"}},
  };
  for (const Refusal& refusal : refusals) {
    const ProgramResult result = run_wafer(refusal.arguments);
    EXPECT_EQ(result.status, 2) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& text : refusal.says) EXPECT_THAT(result.err, HasSubstr(text));
  }
}

TEST(Wafer, RefusesMalformedDeviceFiles) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "device.json").string();
  const std::pair<const char*, const char*> files[] = {
      {"{", "device.json"},
      {R"({"base": "wse-2", "sram_byte": 1})", "sram_byte"},
      {R"({"base": "wse-2", "clock_ghz": -1})", "clock_ghz"},
      {R"({"base": "wse-2", "clock_ghz": "fast"})", "clock_ghz"},
      {R"({"clock_ghz": 1})", "missing"},
      {R"({"base": "wse-2", "routes": 4})", "free_routes"},
  };
  for (const auto& [text, says] : files) {
    write_file(file, text);
    const ProgramResult result = run_wafer({"gemv", "--n", "64", "--device", file});
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(says));
  }
  write_file(file, R"({"base": "wse-2", "name": "twice", "clock_ghz": 2.2})");
  EXPECT_NEAR(wafer_json({"gemv", "--n", "4096", "--device", file})["microseconds"].get<double>() * 2,
              wafer_json({"gemv", "--n", "4096"})["microseconds"].get<double>(), 1e-9);
}

}  // namespace
}  // namespace heddle
