#include "cli/bench/fused.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "cli/bench/bench.h"
#include "cli/bench/collective.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "collectives/all_gather.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"
#include "machine/device_choice.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr int kMostFusedRanks = 16;

// The largest of the ranks' values; a NaN is the largest.
double most_of_ranks(double mine, const FusedRank& rank) {
  const auto value = static_cast<float>(mine);
  std::vector<float> all(static_cast<std::size_t>(rank.fabric.size()));
  all_gather(rank.communicator, {&value, all.data(), 1, DType::float32}, rank.stream);
  rank.fabric.synchronize(rank.stream);
  double most = 0;
  for (const float one : all) {
    if (std::isnan(one)) return std::nan("");
    most = std::max(most, static_cast<double>(one));
  }
  return most;
}

struct FusedReport {
  ordered_json results = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
};

void measure_case(const FusedBenchOptions& options, const FusedCaseMaker& maker, const FusedRank& rank,
                  FusedReport& report) {
  const auto one = maker.make(rank);
  double bsp = 0;
  for (const FusedCase::Variant& variant : one->variants()) {
    one->clear_result();
    for (int i = 0; i < 2; ++i) variant.call();
    rank.fabric.synchronize(rank.stream);
    const double error = most_of_ranks(one->max_relative_error(), rank);
    std::vector<double> samples;
    samples.reserve(static_cast<std::size_t>(options.repeats));
    for (int i = 0; i < options.repeats; ++i)
      samples.push_back(seconds_per_call(rank.communicator, rank.stream, 1,
                                         [&](int) {
                                           const Span step(rank.stream, "step");
                                           variant.call();
                                         }) *
                        1e6);
    const double microseconds = most_of_ranks(median(samples), rank);
    if (variant.name == "bsp") bsp = microseconds;
    ordered_json result = {{"variant", variant.name}};
    result.update(maker.shape);
    result.update({{"ranks", rank.fabric.size()},
                   {"microseconds", microseconds},
                   {"p10_microseconds", quantile(samples, 0.1)},
                   {"p90_microseconds", quantile(samples, 0.9)},
                   {"max_relative_error", error}});
    report.results.push_back(std::move(result));
    std::vector<std::string> row;
    row.reserve(maker.shape.size() + 4);
    for (const auto& field : maker.shape) row.push_back(field.is_string() ? field.get<std::string>() : field.dump());
    for (std::string cell : {variant.name, fmt::format("{:.1f}", microseconds),
                             fmt::format("{:.2f}", bsp / microseconds), fmt::format("{:.1e}", error)})
      row.push_back(std::move(cell));
    report.rows.push_back(std::move(row));
  }
}

}  // namespace

void FusedCase::clear_result() {
  for (std::int64_t row = 0; row < result_.rows; ++row)
    std::fill_n(static_cast<float*>(result_.data) + row * result_.row_stride, result_.columns, std::nanf(""));
}

int FusedBenchOptions::num_ranks() const {
  return started_by_mpirun() ? read_launch().world_size : ranks;
}

Ranks whole_team(const Fabric& fabric) {
  Ranks all(static_cast<std::size_t>(fabric.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void add_fused_options(CLI::App& command, FusedBenchOptions& options) {
  add_number_option<int>(command, "--ranks", options.ranks, "Threads, where mpirun starts none; default 2",
                         {.min = 1, .max = kMostFusedRanks});
  command.add_option("--device", options.devices,
                     "Where the ranks run: cpu, or a device for each, comma-separated; default cpu");
  add_number_option<int>(command, "--repeats", options.repeats, "Samples of each case; default 20",
                         {.min = 1, .max = 10000});
  add_json_option(command, options.json_file);
}

void require_devices(const FusedBenchOptions& options, const std::string& kind) {
  std::vector<Device> devices;
  for (std::size_t begin = 0; begin <= options.devices.size();) {
    const std::size_t end = std::min(options.devices.find(',', begin), options.devices.size());
    const std::string name = options.devices.substr(begin, end - begin);
    const std::optional<Device> device = device_named(name);
    if (!device)
      throw_error<InputError>("--device {}: \"{}\" is no device; expected cpu, cuda, or a list such as cuda:0,cuda:0",
                              printable_text(options.devices), printable_text(name));
    devices.push_back(*device);
    begin = end + 1;
  }
  if (devices.size() > 1 && devices.size() != static_cast<std::size_t>(options.ranks))
    throw_error<InputError>("--device {}: names {} devices for {} ranks", printable_text(options.devices),
                            devices.size(), options.ranks);
  for (const Device device : devices)
    if (device.kind != DeviceKind::cpu)
      throw_error<InputError>("--device {}: {} has no kernel for GPUs yet; --device cpu runs its ranks as threads",
                              printable_text(options.devices), kind);
}

void run_fused_bench(const std::string& kind, const FusedBenchOptions& options,
                     const std::vector<FusedCaseMaker>& cases) {
  ordered_json record = bench_record(kind, {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty() && *options.json_file != "-";
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  const int ranks = options.num_ranks();
  const CommunicatorOptions of_communicator{.vendor = false};
  std::size_t heap = 0;
  for (const FusedCaseMaker& one : cases) heap = std::max(heap, one.heap_bytes);
  heap += Communicator::heap_bytes(ranks, {}, of_communicator) + (std::size_t{1} << 16);
  FusedReport report;
  run_ranks("shm", options.ranks, {.heap_bytes = heap, .deadline = std::chrono::seconds(60)},
            [&](Fabric& fabric, Stream& stream) {
              ThreadPool pool(1);
              Stream transfers(pool);
              Communicator communicator(fabric, whole_team(fabric), stream, of_communicator);
              FusedReport mine;
              for (const FusedCaseMaker& one : cases)
                measure_case(options, one, {fabric, stream, transfers, communicator}, mine);
              if (fabric.rank() == 0) report = std::move(mine);
            });
  if (report.rows.empty()) return;  // a rank other than 0, in a process of its own
  record["device"] = "cpu";
  record["ranks"] = ranks;
  record["results"] = report.results;
  record["machine"]["clock_mhz_after"] = clock_mhz();
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  std::vector<std::string> head;
  for (const auto& field : cases.front().shape.items()) head.push_back(field.key());
  for (const char* column : {"variant", "us", "x of bsp", "max error"}) head.emplace_back(column);
  report.rows.insert(report.rows.begin(), std::move(head));
  write_stdout(options.json_file && !to_file ? text : table_text(report.rows));
}

}  // namespace heddle
