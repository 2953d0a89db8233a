#include "cli/bench/flag.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "fabric/run_ranks.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct FlagBenchOptions {
  std::string fabric = "shm";
  int ranks = 2;
  int rounds = 2000;
  int repeats = 20;
  Order order = Order::release;
  std::optional<std::string> json_file;
};

// Ping-pong latency of a flag between rank 0 and each other rank, one rank after the other, measured on rank 0's host.
// One task runs `rounds` round trips, which spreads its launch cost over all of them.
class FlagBench {
 public:
  FlagBench(const FlagBenchOptions& options, Fabric& fabric, Stream& stream)
      : options_(options),
        fabric_(fabric),
        stream_(stream),
        flags_(reinterpret_cast<std::uint64_t*>(
            fabric.allocate(sizeof(std::uint64_t) * static_cast<std::size_t>(fabric.size())).data)),
        inside_(fabric.has(Capability::peer_addresses)) {}

  std::vector<double> with(int other) {
    std::vector<double> samples;
    std::uint64_t earlier = 0;
    for (int sample = -2; sample < options_.repeats; ++sample) {  // two warm-up samples
      fabric_.barrier(stream_);
      fabric_.synchronize(stream_);
      const auto begin = std::chrono::steady_clock::now();
      if (fabric_.rank() == 0 || fabric_.rank() == other) enqueue(other, earlier);
      fabric_.synchronize(stream_);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      earlier += static_cast<std::uint64_t>(options_.rounds);
      if (sample >= 0) samples.push_back(taken.count() / options_.rounds);
    }
    return samples;
  }

 private:
  void enqueue(int other, std::uint64_t earlier) {
    const bool first = fabric_.rank() == 0;
    const int peer = first ? other : 0;
    std::uint64_t* const flag = flags_ + other;
    const auto rounds = static_cast<std::uint64_t>(options_.rounds);
    if (inside_) {
      const FlagRounds::Turn turn = first ? FlagRounds::Turn::first : FlagRounds::Turn::second;
      enqueue_flag_rounds(
          fabric_,
          {.peer = peer, .flag = flag, .earlier = earlier, .rounds = rounds, .turn = turn, .order = options_.order},
          stream_);
      return;
    }
    for (std::uint64_t i = earlier + 1; i <= earlier + rounds; ++i) {
      if (first) fabric_.signal(stream_, peer, flag, i);
      fabric_.wait(stream_, peer, flag, i, "flag rounds");
      if (!first) fabric_.signal(stream_, peer, flag, i);
    }
  }

  const FlagBenchOptions& options_;
  Fabric& fabric_;
  Stream& stream_;
  std::uint64_t* flags_;  // one per pair
  bool inside_;
};

void run_flag_bench(const FlagBenchOptions& options) {
  ordered_json record = bench_record("flag", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  std::vector<std::vector<std::string>> rows{{"ranks", "there and back, us", "p10", "p90"}};
  run_ranks(options.fabric, options.ranks, {}, [&](Fabric& fabric, Stream& stream) {
    if (options.order == Order::relaxed) require_capability(fabric, Capability::peer_addresses, "--order relaxed");
    if (fabric.size() < 2) throw_error<InputError>("bench flag needs two ranks, there is one");
    FlagBench bench(options, fabric, stream);
    ordered_json pairs = ordered_json::array();
    for (int other = 1; other < fabric.size(); ++other) {
      const ordered_json seconds = spread(bench.with(other));
      if (fabric.rank() != 0) continue;
      const auto microseconds = [&](const char* field) {
        return fmt::format("{:.2f}", seconds[field].get<double>() * 1e6);
      };
      rows.push_back({fmt::format("0, {}", other), microseconds("median"), microseconds("p10"), microseconds("p90")});
      pairs.push_back({{"ranks", {0, other}}, {"seconds", seconds}});
    }
    if (fabric.rank() != 0) return;
    record["fabric"] = fabric.name();
    record["rounds"] = options.rounds;
    record["order"] = options.order == Order::release ? "release" : "relaxed";
    record["pairs"] = pairs;
  });
  if (rows.size() == 1) return;  // a rank other than 0, in a process of its own
  record["machine"]["clock_mhz_after"] = clock_mhz();
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  write_stdout(options.json_file && !to_file ? text : table_text(rows));
}

}  // namespace

void add_flag_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<FlagBenchOptions>();
  CLI::App* command = bench.add_subcommand("flag", "Ping-pong latency of a flag between two ranks, by fabric");
  command->add_option("--fabric", options->fabric, "shm, mpi or nvlink; default shm");
  add_number_option<int>(*command, "--ranks", options->ranks, "Threads or GPUs, where mpirun starts none; default 2",
                         {.min = 2, .max = kMaxPeers});
  add_number_option<int>(*command, "--rounds", options->rounds, "Round trips per sample; default 2000",
                         {.min = 1, .max = 1000000});
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 20", {.min = 1, .max = 10000});
  command->add_option_function<std::string>(
      "--order",
      [options](const std::string& text) {
        if (text != "release" && text != "relaxed")
          throw CLI::ValidationError("--order",
                                     fmt::format("is \"{}\", expected release or relaxed", printable_text(text)));
        options->order = text == "release" ? Order::release : Order::relaxed;
      },
      "release: a rank that sees the flag also sees what was written before it; relaxed: the flag only. Default "
      "release");
  add_json_option(*command, options->json_file);
  command->callback([options] { run_flag_bench(*options); });
}

}  // namespace heddle
