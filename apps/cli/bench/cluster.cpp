// bench cluster: thread block clusters and their collectives, beside ClusterFusion's Fig. 5 and Table 1.
#include "cli/bench/cluster.h"

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/device.h"
#include "cli/bench/record.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "schedule/tree.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct ClusterBenchOptions {
  int repeats = 10;
  std::optional<std::string> json_file;
};

constexpr int kCallsOfSample = 500;
constexpr int kClusterSizes[] = {1, 2, 4, 8, 16};
constexpr int kTableKib[] = {32, 64, 128, 256};

// ClusterFusion on an H100: Table 1, microseconds by KiB; what Fig. 5's text says.
struct OfPaper {
  double off_chip, on_chip;
};
const std::map<std::pair<bool, int>, OfPaper> kTable1{
    {{true, 32}, {8.03, 6.77}},   {{true, 64}, {9.01, 6.61}},   {{true, 128}, {14.95, 7.42}},
    {{true, 256}, {22.44, 9.17}}, {{false, 32}, {6.26, 3.90}},  {{false, 64}, {6.27, 4.12}},
    {{false, 128}, {6.31, 4.39}}, {{false, 256}, {6.61, 4.15}},
};
constexpr double kPapersLatency2 = 190, kPapersBandwidth16 = 2.90;

const char* name_of_route(ClusterRoute route) {
  static constexpr const char* kNames[] = {"tree",      "paper's tree", "one step", "in bulk",
                                           "two steps", "packets",      "flags"};
  return kNames[static_cast<int>(route)];
}

struct ClusterFigures {
  int blocks = 0, active_sms = 0;
  ClusterLatency latency{};
  std::vector<double> bytes_per_second;
};

class ClusterBench {
 public:
  explicit ClusterBench(const ClusterBenchOptions& options)
      : options_(options), device_({DeviceKind::cuda, 0}, 1), sink_(256, device_.device()) {}

  // By cluster size: those that the device runs.
  void measure_figures() {
    global_ = measure_global_latency(device_.stream());
    read_gbps_ = device_.read_gbps();
    for (const int blocks : kClusterSizes) {
      ClusterFigures figures{.blocks = blocks, .active_sms = active_blocks(blocks, device_.device())};
      if (figures.active_sms == 0) continue;
      figures.latency = measure_cluster_latency(blocks, device_.stream());
      constexpr int kPasses = 200;
      double bytes = 0;
      for (const double seconds : device_.seconds_per_call(1, options_.repeats, [&](int) {
             bytes = enqueue_cluster_reads(blocks, kPasses, sink_.data(), device_.stream());
           }))
        figures.bytes_per_second.push_back(bytes / seconds);
      figures_.push_back(figures);
    }
  }

  ordered_json figures_record() const {
    ordered_json sizes = ordered_json::array();
    for (const ClusterFigures& of : figures_) {
      ordered_json one{{"cluster", of.blocks},
                       {"latency_cycles", of.latency.cycles},
                       {"latency_ns", of.latency.nanoseconds},
                       {"read_bytes_per_second", spread(of.bytes_per_second)},
                       {"active_sms", of.active_sms}};
      if (of.blocks == 2) one["paper_latency_cycles"] = kPapersLatency2;
      if (of.blocks == 16) one["paper_read_bytes_per_second"] = kPapersBandwidth16 * 1e12;
      sizes.push_back(one);
    }
    return {{"global_latency_cycles", global_.cycles},
            {"global_latency_ns", global_.nanoseconds},
            {"global_read_bytes_per_second", read_gbps_ * 1e9},
            {"clusters", sizes}};
  }

  std::string figures_text() const {
    std::vector<std::vector<std::string>> rows{
        {"cluster", "latency, cycles", "ns", "read, TB/s", "of HBM", "active SMs", "paper (H100)"}};
    for (const ClusterFigures& of : figures_) {
      const double rate = median(of.bytes_per_second);
      rows.push_back({std::to_string(of.blocks), fmt::format("{:.0f}", of.latency.cycles),
                      fmt::format("{:.0f}", of.latency.nanoseconds), fmt::format("{:.2f}", rate * 1e-12),
                      fmt::format("{:.0f} %", rate / (read_gbps_ * 1e9) * 100), std::to_string(of.active_sms),
                      of.blocks == 2    ? "190 cycles"
                      : of.blocks == 16 ? "2.90 TB/s"
                                        : ""});
    }
    rows.push_back({"HBM", fmt::format("{:.0f}", global_.cycles), fmt::format("{:.0f}", global_.nanoseconds),
                    fmt::format("{:.2f}", read_gbps_ * 1e-3), "100 %", "", "> 470 cycles, 2.96 TB/s"});
    return table_text(rows);
  }

  // `all`: every cluster that fits is busy.
  void measure_calls(bool reduces, int blocks, int kib, bool all) {
    const ClusterFigures* const figures = figures_of(blocks);
    if (figures == nullptr) return;
    // The bytes over the cluster: of all blocks' buffers; of a gather, when it is done.
    const int vectors = kib * 1024 / 16 / blocks / (reduces ? 1 : blocks);
    if (vectors == 0) return;
    ordered_json routes = ordered_json::array();
    double best[2] = {0, 0};  // off the chip, on it
    const char* names[2] = {"", ""};
    for (int r = 0; r < kClusterRoutes; ++r) {
      ClusterCalls calls{.reduces = reduces,
                         .route = static_cast<ClusterRoute>(r),
                         .blocks = blocks,
                         .clusters = all ? figures->active_sms / blocks : 1,
                         .calls = kCallsOfSample,
                         .vectors = vectors};
      if (cluster_shared_bytes(calls) > kMostShared) continue;
      if (calls.route == ClusterRoute::two_steps && (!reduces || vectors % blocks != 0)) continue;
      const std::vector<double> seconds = seconds_of(calls);
      const double floor = floor_seconds(calls, *figures);
      routes.push_back({{"route", name_of_route(calls.route)},
                        {"seconds", spread(seconds)},
                        {"floor_seconds", floor},
                        {"fraction_of_floor", floor / median(seconds)}});
      const int kind = is_on_chip(calls.route) ? 1 : 0;
      if (best[kind] == 0 || median(seconds) < best[kind]) {
        best[kind] = median(seconds);
        names[kind] = name_of_route(calls.route);
      }
    }
    ordered_json one{{"operation", reduces ? "reduce" : "gather"},
                     {"cluster", blocks},
                     {"kib", kib},
                     {"busy", all ? "all" : "one"},
                     {"clusters", all ? figures->active_sms / blocks : 1},
                     {"routes", routes}};
    std::string paper;
    if (const auto of = kTable1.find({reduces, kib}); of != kTable1.end()) {
      one["paper"] = {{"off_chip_us", of->second.off_chip}, {"on_chip_us", of->second.on_chip}};
      paper = fmt::format("{:.2f} / {:.2f} = {:.2f}x", of->second.off_chip, of->second.on_chip,
                          of->second.off_chip / of->second.on_chip);
    }
    calls_.push_back(one);
    const auto text = [&](int kind) {
      return best[kind] == 0 ? std::string("-") : fmt::format("{:.2f} ({})", best[kind] * 1e6, names[kind]);
    };
    rows_.push_back({reduces ? "reduce" : "gather", std::to_string(blocks), std::to_string(kib), all ? "all" : "one",
                     text(0), text(1), best[1] == 0 ? "-" : fmt::format("{:.2f}x", best[0] / best[1]), paper});
  }

  void measure_table() {
    for (const bool reduces : {true, false})
      for (const int blocks : {2, 4, 8, 16})
        for (const int kib : kTableKib)
          for (const bool all : {false, true}) measure_calls(reduces, blocks, kib, all);
  }

  const ordered_json& calls_record() const { return calls_; }
  std::string calls_text() const { return table_text(rows_); }
  BenchDevice& device() { return device_; }

 private:
  static constexpr std::size_t kMostShared = std::size_t{226} << 10;

  const ClusterFigures* figures_of(int blocks) const {
    for (const ClusterFigures& of : figures_)
      if (of.blocks == blocks) return &of;
    return nullptr;
  }

  std::vector<double> seconds_of(ClusterCalls calls) {
    Buffer memory(cluster_memory_bytes(calls), device_.device());
    enqueue_clear(device_.stream(), memory.data(), memory.size_bytes());
    calls.memory = memory.data();
    // Replays of a graph have the same arguments: the numbers of calls must begin anew.
    std::vector<double> seconds = device_.seconds_per_call(1, options_.repeats, [&](int) {
      if (!is_on_chip(calls.route)) enqueue_clear(device_.stream(), memory.data(), memory.size_bytes());
      enqueue_cluster_calls(calls, device_.stream());
    });
    for (double& each : seconds) each /= calls.calls;
    return seconds;
  }

  // A latency for each round, and what a block receives at its share of the measured rate. Off the chip one latency of
  // global memory, and no time for bytes.
  double floor_seconds(const ClusterCalls& calls, const ClusterFigures& figures) const {
    if (!is_on_chip(calls.route)) return global_.nanoseconds * 1e-9;
    const bool one_step = calls.route == ClusterRoute::one_step || calls.route == ClusterRoute::in_bulk;
    const int rounds = one_step ? 1 : calls.route == ClusterRoute::two_steps ? 2 : schedule::log2_exact(calls.blocks);
    const double part = (calls.blocks - 1.0) / calls.blocks;
    const double buffers = calls.route == ClusterRoute::two_steps ? 2 * part
                           : calls.reduces && !one_step           ? rounds
                                                                  : calls.blocks - 1;
    const double rate = median(figures.bytes_per_second) / figures.active_sms;
    return rounds * figures.latency.nanoseconds * 1e-9 + buffers * calls.vectors * 16 / rate;
  }

  const ClusterBenchOptions& options_;
  BenchDevice device_;
  Buffer sink_;
  ClusterLatency global_{};
  double read_gbps_ = 0;
  std::vector<ClusterFigures> figures_;
  ordered_json calls_ = ordered_json::array();
  std::vector<std::vector<std::string>> rows_{
      {"operation", "cluster", "KiB", "busy", "off chip, us", "on chip, us", "ratio", "paper: off / on (H100)"}};
};

void run_cluster_bench(const ClusterBenchOptions& options) {
  ordered_json record = bench_record("cluster", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  if constexpr (kHaveCuda) {
    ClusterBench bench(options);
    bench.measure_figures();
    bench.measure_table();
    record["gpu"] = gpu_record(bench.device().device());
    record["figure_5"] = bench.figures_record();
    record["table_1"] = bench.calls_record();
    const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
    if (to_file) write_file(*options.json_file, text);
    write_stdout(options.json_file && !to_file ? text : bench.figures_text() + "\n" + bench.calls_text());
  } else {
    throw_error<Failure>("bench cluster measures a Hopper GPU, and this build has no CUDA");
  }
}

}  // namespace

void add_cluster_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<ClusterBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("cluster", "Thread block clusters of a GPU, and their collectives on and off the chip");
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 10", {.min = 1, .max = 10000});
  add_json_option(*command, options->json_file);
  command->callback([options] { run_cluster_bench(*options); });
}

}  // namespace heddle
