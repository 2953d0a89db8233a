#include "cli/bench/fused.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/copy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "base/trace_report.h"
#include "cli/bench/bench.h"
#include "cli/bench/collective.h"
#include "cli/bench/interleave.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "collectives/all_gather.h"
#include "engine/rank_world.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"
#include "kernels/linear/linear.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr int kMostFusedRanks = 16;
constexpr int kValuesApart = 16;  // of FusedRank::values: a rank's own, and those of all ranks

// The largest of the ranks' values; a NaN is the largest.
double most_of_ranks(double mine, const FusedRank& rank) {
  const auto value = static_cast<float>(mine);
  auto* const own = reinterpret_cast<float*>(rank.values.data());
  auto* const of_ranks = own + kValuesApart;
  std::vector<float> all(static_cast<std::size_t>(rank.fabric.size()));
  enqueue_copy(rank.stream, own, &value, sizeof(float));
  all_gather(rank.communicator, {own, of_ranks, 1, DType::float32}, rank.stream);
  enqueue_copy(rank.stream, all.data(), of_ranks, all.size() * sizeof(float));
  rank.fabric.synchronize(rank.stream);
  double most = 0;
  for (const float one : all) {
    if (std::isnan(one)) return std::nan("");
    most = std::max(most, static_cast<double>(one));
  }
  return most;
}

// What is timed of a case: its variants, and, last, the GEMM alone where it has one.
std::vector<FusedCase::Variant> timed_of(const FusedCase& one) {
  std::vector<FusedCase::Variant> timed = one.variants();
  if (one.gemm()) timed.push_back({"gemm", one.gemm()});
  return timed;
}

// Microseconds per call of each; on a GPU in graphs of several calls. Samples are interleaved.
std::vector<std::vector<double>> samples_of(const FusedBenchOptions& options, const FusedRank& rank,
                                            const std::vector<FusedCase::Variant>& timed) {
  constexpr int kCallsOfGraph = 5;
  std::vector<std::vector<double>> samples(timed.size());
  if constexpr (kHaveCuda)
    if (rank.on_gpu()) {
      std::vector<std::function<void()>> calls;
      for (const FusedCase::Variant& one : timed) calls.push_back(one.call);
      std::vector<GraphSamples> graphs =
          interleaved_graph_samples(rank.communicator, rank.stream, kCallsOfGraph, options.repeats, calls);
      for (std::size_t i = 0; i < timed.size(); ++i) samples[i] = std::move(graphs[i].seconds);
    }
  for (int sample = 0; !rank.on_gpu() && sample < options.repeats; ++sample)
    for (std::size_t turn = 0; turn < timed.size(); ++turn) {
      const std::size_t i = interleaved(sample, turn, timed.size());
      const FusedCase::Variant& variant = timed[i];
      samples[i].push_back(seconds_per_call(rank.communicator, rank.stream, 1, [&](int) {
        const Span named(rank.stream, variant.name);
        const Span step(rank.stream, "step");
        if (variant.inter_kernel_bytes > 0)
          Span{rank.stream, kHandover, static_cast<int>(variant.inter_kernel_bytes / 1024)};
        variant.call();
      }));
    }
  for (std::vector<double>& of : samples)
    for (double& sample : of) sample *= 1e6;
  return samples;
}

FusedMeasurement measure_case(const FusedBenchOptions& options, const FusedCaseMaker& maker, const FusedRank& rank) {
  const auto one = maker.make(rank);
  one->warm_up();
  rank.fabric.synchronize(rank.stream);
  rank.fabric.meet();
  const std::vector<FusedCase::Variant> timed = timed_of(*one);
  std::vector<double> errors, microseconds;
  for (const FusedCase::Variant& each : timed) {
    one->clear_result(rank);
    for (int i = 0; i < 2; ++i) each.call();
    rank.fabric.synchronize(rank.stream);
    const bool is_variant = errors.size() < one->variants().size();  // the GEMM alone gives no sum over ranks
    if (is_variant) errors.push_back(most_of_ranks(one->max_relative_error(), rank));
  }
  const std::vector<std::vector<double>> samples = samples_of(options, rank, timed);
  for (const std::vector<double>& of : samples) microseconds.push_back(most_of_ranks(median(of), rank));
  FusedMeasurement measured;
  for (std::size_t i = 0; i < one->variants().size(); ++i)
    measured.variants.push_back({.name = timed[i].name,
                                 .microseconds = microseconds[i],
                                 .p10_microseconds = quantile(samples[i], 0.1),
                                 .p90_microseconds = quantile(samples[i], 0.9),
                                 .max_relative_error = errors[i],
                                 .inter_kernel_bytes = timed[i].inter_kernel_bytes});
  if (one->gemm()) measured.gemm_microseconds = microseconds.back();
  rank.fabric.meet();  // memory is freed when no kernel waits any more
  return measured;
}

struct FusedReport {
  ordered_json results = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
};

void add_case(FusedReport& report, const ordered_json& shape, int ranks, const FusedMeasurement& measured) {
  const std::optional<double> gemm = measured.gemm_microseconds;
  const double bsp = measured.variants.front().microseconds;
  for (const FusedMeasurement::Variant& variant : measured.variants) {
    ordered_json result = {{"variant", variant.name}};
    result.update(shape);
    result.update({{"ranks", ranks},
                   {"microseconds", variant.microseconds},
                   {"p10_microseconds", variant.p10_microseconds},
                   {"p90_microseconds", variant.p90_microseconds}});
    if (gemm) result["gemm_microseconds"] = *gemm;
    result.update(
        {{"inter_kernel_bytes", variant.inter_kernel_bytes}, {"max_relative_error", variant.max_relative_error}});
    report.results.push_back(std::move(result));
    std::vector<std::string> row;
    row.reserve(shape.size() + 5);
    for (const auto& field : shape) row.push_back(field.is_string() ? field.get<std::string>() : field.dump());
    for (std::string cell :
         {variant.name, fmt::format("{:.1f}", variant.microseconds), fmt::format("{:.2f}", bsp / variant.microseconds),
          gemm ? fmt::format("{:.2f}", variant.microseconds / *gemm) : std::string("-"),
          fmt::format("{:.1e}", variant.max_relative_error)})
      row.push_back(std::move(cell));
    report.rows.push_back(std::move(row));
  }
}

std::vector<std::string_view> parts_between_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Buffer uploaded(const FusedRank& rank, const void* source, std::size_t bytes) {
  Buffer memory(std::max<std::size_t>(1, bytes), rank.device());
  enqueue_copy(rank.stream, memory.data(), source, bytes);
  rank.stream.synchronize();
  return memory;
}

void FusedCase::clear_result(const FusedRank& rank) const {
  const std::vector<float> nothing(static_cast<std::size_t>(result_.rows * result_.columns), std::nanf(""));
  enqueue_copy(rank.stream, result_.data, nothing.data(), nothing.size() * sizeof(float));
  rank.stream.synchronize();
}

std::vector<float> FusedCase::result_on_host(const FusedRank& rank) const {
  std::vector<float> result(static_cast<std::size_t>(result_.rows * result_.columns));
  enqueue_copy(rank.stream, result.data(), result_.data, result.size() * sizeof(float));
  rank.stream.synchronize();
  return result;
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

std::vector<Device> require_devices(const FusedBenchOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.num_ranks());
  std::vector<Device> devices;
  for (const std::string_view name : parts_between_commas(options.devices)) {
    const std::optional<Device> device = device_named(name);
    if (!device)
      throw_error<InputError>("--device {}: \"{}\" is no device; expected cpu, cuda, or a list such as cuda:0,cuda:0",
                              printable_text(options.devices), printable_text(name));
    devices.push_back(*device);
  }
  const bool first_gpus = options.devices == "cuda";
  while (devices.size() == 1 && devices.size() < ranks) devices.resize(ranks, devices.front());
  for (std::size_t i = 0; first_gpus && i < ranks; ++i) devices[i].index = static_cast<int>(i);
  if (devices.size() != ranks)
    throw_error<InputError>("--device {}: names {} devices for {} ranks", printable_text(options.devices),
                            devices.size(), ranks);
  const auto on_gpus = static_cast<std::size_t>(
      std::ranges::count_if(devices, [](const Device& device) { return device.kind == DeviceKind::cuda; }));
  if (on_gpus == 0) return devices;
  if (on_gpus < ranks)
    throw_error<InputError>("--device {}: the ranks are all on the CPU, or all on GPUs",
                            printable_text(options.devices));
  prepare_shared_gpus(devices);
  const GpuDiscovery found = discover_gpus();
  if (found.gpus.empty())
    throw_error<InputError>("--device {}: {}; --device cpu runs the ranks as threads", printable_text(options.devices),
                            found.why_none);
  for (const Device& device : devices)
    if (static_cast<std::size_t>(device.index) >= found.gpus.size())
      throw_error<InputError>("--device {}: there are {} GPUs here, counted from cuda:0; ranks can share one: {}",
                              printable_text(options.devices), found.gpus.size(), "cuda:0,cuda:0");
  return devices;
}

std::vector<FusedMeasurement> measure_fused(const FusedBenchOptions& options, const std::vector<Device>& devices,
                                            const std::vector<FusedCaseMaker>& cases,
                                            const std::function<void(const FusedMeasurement&)>& after_each) {
  const int ranks = options.num_ranks();
  const bool on_gpu = devices.front().kind == DeviceKind::cuda;
  CommunicatorOptions of_communicator{.vendor = false};
  if (on_gpu) {  // calls are captured in graphs, so hosts compare none
    of_communicator.largest_bytes = options.largest_bytes;
    of_communicator.checked_calls = 0;
  }
  std::size_t heap = 0;
  for (const FusedCaseMaker& one : cases) heap = std::max(heap, one.heap_bytes);
  heap += Communicator::heap_bytes(ranks, devices.front(), of_communicator) + (std::size_t{1} << 20);
  std::vector<FusedMeasurement> of_rank_0;
  const auto measure_on = [&](Fabric& fabric, Stream& stream) {
    std::optional<ThreadPool> pool;
    if (!on_gpu) pool.emplace(1);
    Stream transfers = pool ? Stream(*pool) : Stream(fabric.device());
    Buffer workspace(std::max<std::size_t>(1, linear_workspace_bytes(fabric.device())), fabric.device());
    Buffer values(sizeof(float) * static_cast<std::size_t>(kValuesApart + fabric.size()), fabric.device());
    const Workspace of_lane{workspace.data(), workspace.size_bytes()};
    const Lane lane = on_gpu ? Lane(stream, fabric.device_share().sms, of_lane) : Lane(stream);
    Communicator communicator(fabric, whole_team(fabric), stream, of_communicator);
    for (const FusedCaseMaker& one : cases) {
      const FusedMeasurement measured =
          measure_case(options, one, {fabric, stream, transfers, communicator, lane, values});
      if (fabric.rank() != 0) continue;
      of_rank_0.push_back(measured);
      after_each(measured);
    }
  };
  const FabricOptions of_fabric{.heap_bytes = heap, .deadline = std::chrono::seconds(60)};
  if (on_gpu) {
    std::vector<int> gpus;
    gpus.reserve(devices.size());
    for (const Device& device : devices) gpus.push_back(device.index);
    run_ranks_on_gpus(gpus, of_fabric, measure_on);
  } else {
    run_ranks("shm", options.ranks, of_fabric, measure_on);
  }
  return of_rank_0;
}

void run_fused_bench(const std::string& kind, const FusedBenchOptions& options, const std::vector<Device>& devices,
                     const std::vector<FusedCaseMaker>& cases) {
  ordered_json record = bench_record(kind, {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty() && *options.json_file != "-";
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  const int ranks = options.num_ranks();
  record["device"] = options.devices;
  record["ranks"] = ranks;
  FusedReport report;
  std::string text;
  measure_fused(options, devices, cases, [&, next = cases.begin()](const FusedMeasurement& measured) mutable {
    add_case(report, next++->shape, ranks, measured);
    record["results"] = report.results;
    record["machine"]["clock_mhz_after"] = clock_mhz();
    text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
    if (to_file) write_file(*options.json_file, text);
  });
  if (text.empty()) return;  // a rank other than 0, in a process of its own
  std::vector<std::string> head;
  for (const auto& field : cases.front().shape.items()) head.push_back(field.key());
  for (const char* column : {"variant", "us", "x of bsp", "of GEMM", "max error"}) head.emplace_back(column);
  report.rows.insert(report.rows.begin(), std::move(head));
  write_stdout(options.json_file && !to_file ? text : table_text(report.rows));
}

}  // namespace heddle
