// heddle trace: runs another command of heddle and records what its streams do.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/gpu_activity.h"
#include "base/trace_report.h"
#include "base/tracer.h"
#include "cli/bench/record.h"
#include "cli/commands.h"
#include "cli/gpu_report.h"
#include "cli/gpu_waits.h"
#include "cli/output.h"
#include "cli/perfetto_json.h"
#include "cli/step_bars.h"
#include "cli/trace_parts.h"
#include "fabric/launch.h"
#include "machine/gpu.h"
#include "machine/measure.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct TraceOptions {
  std::string output = "trace.json";
  std::optional<std::string> report_file;
  std::optional<std::string> bars_file;
  std::vector<std::string> command;
};

struct TraceReport {
  ordered_json record;
  std::string text;
};

// `entries`: in the trace.
TraceReport report_of(const std::vector<StepShares>& all, std::size_t entries) {
  TraceReport report{.record = {{"steps", ordered_json::array()}}, .text = {}};
  std::vector<std::vector<std::string>> rows{{"rank", "variant", "steps", "us of a step", "compute %", "transfer %",
                                              "launch tax %", "bulk-synchronous tax %", "of which inter-kernel tax %",
                                              "hidden transfer %"}};
  for (const StepShares& one : all) {
    const double sum = one.compute + one.transfer + one.launch + one.synchronous;
    report.record["steps"].push_back({{"rank", one.rank},
                                      {"variant", one.label},
                                      {"steps", one.steps},
                                      {"seconds", one.step_seconds},
                                      {"compute_seconds", one.compute},
                                      {"transfer_seconds", one.transfer},
                                      {"launch_tax_seconds", one.launch},
                                      {"bulk_synchronous_tax_seconds", one.synchronous},
                                      {"sum_of_parts_seconds", sum},
                                      {"inter_kernel_tax_seconds", one.inter_kernel},
                                      {"hidden_transfer_seconds", one.hidden_transfer}});
    const auto share = [&](double seconds) { return fmt::format("{:.1f}", 100 * seconds / one.step_seconds); };
    rows.push_back({fmt::format("{}", one.rank), one.label.empty() ? "-" : one.label, fmt::format("{}", one.steps),
                    fmt::format("{:.1f}", one.step_seconds * 1e6 / one.steps), share(one.compute), share(one.transfer),
                    share(one.launch), share(one.synchronous), share(one.inter_kernel), share(one.hidden_transfer)});
  }
  if (!all.empty())
    report.text = table_text(rows);
  else if (entries > 0)
    report.text =
        fmt::format("{} entries are in the trace. This report is of a model's steps, and there were none.\n", entries);
  else
    report.text =
        "Nothing was recorded: the command ran nothing on streams of the CPU, and no kernel of a GPU was seen.\n";
  return report;
}

// Adds what GPUs did: the parts of their time, and the kernels that took most of it.
void add_gpu_report(TraceReport& report, const std::vector<GpuTrack>& tracks) {
  constexpr std::size_t kMostKernels = 12;  // in the text
  std::vector<std::vector<std::string>> parts{
      {"GPU", "kernels", "ms", "compute %", "transfer %", "bulk-synchronous tax %", "idle %", "hidden transfer %"}};
  for (const GpuShares& one : gpu_shares(tracks)) {
    report.record["gpus"].push_back({{"device", one.device},
                                     {"kernels", one.kernels},
                                     {"seconds", one.seconds},
                                     {"compute_seconds", one.compute},
                                     {"transfer_seconds", one.transfer},
                                     {"bulk_synchronous_tax_seconds", one.synchronous},
                                     {"idle_seconds", one.idle},
                                     {"hidden_transfer_seconds", one.hidden_transfer}});
    const auto share = [&](double seconds) {
      return fmt::format("{:.1f}", one.seconds > 0 ? 100 * seconds / one.seconds : 0);
    };
    parts.push_back({fmt::format("{}", one.device), fmt::format("{}", one.kernels),
                     fmt::format("{:.2f}", one.seconds * 1e3), share(one.compute), share(one.transfer),
                     share(one.synchronous), share(one.idle), share(one.hidden_transfer)});
  }
  std::vector<std::vector<std::string>> kernels{{"GPU", "calls", "ms", "us a call", "of which waits", "kernel"}};
  for (const KernelTime& one : kernel_times(tracks)) {
    report.record["kernels"].push_back({{"device", one.device},
                                        {"name", one.name},
                                        {"calls", one.calls},
                                        {"seconds", one.seconds},
                                        {"waited_seconds", one.waited}});
    if (kernels.size() > kMostKernels) continue;
    kernels.push_back({fmt::format("{}", one.device), fmt::format("{}", one.calls),
                       fmt::format("{:.3f}", one.seconds * 1e3), fmt::format("{:.2f}", one.seconds * 1e6 / one.calls),
                       fmt::format("{:.2f}", one.waited * 1e6 / one.calls), one.name});
  }
  const bool has_steps = !report.record["steps"].empty();
  report.text = (has_steps ? report.text + "\n" : "") + table_text(parts) + "\n" + table_text(kernels);
}

// Adds who waited for whom inside kernels.
void add_wait_report(TraceReport& report, const std::vector<WaitTime>& waits) {
  constexpr std::size_t kMostWaits = 12;  // in the text
  std::vector<std::vector<std::string>> rows{
      {"rank", "for rank", "calls", "blocks", "us a call", "longest us", "wait", "kernel"}};
  for (const WaitTime& one : waits) {
    report.record["waits"].push_back({{"device", one.device},
                                      {"rank", one.rank},
                                      {"for_rank", one.from},
                                      {"kernel", one.kernel},
                                      {"wait", one.name},
                                      {"calls", one.calls},
                                      {"blocks", one.blocks},
                                      {"seconds", one.seconds},
                                      {"longest_seconds", one.longest}});
    if (rows.size() > kMostWaits) continue;
    rows.push_back({fmt::format("{}", one.rank), fmt::format("{}", one.from), fmt::format("{}", one.calls),
                    fmt::format("{:.1f}", one.blocks), fmt::format("{:.2f}", one.seconds * 1e6 / one.calls),
                    fmt::format("{:.2f}", one.longest * 1e6), one.name, one.kernel});
  }
  if (!waits.empty()) report.text += "\n" + table_text(rows);
}

// By the rate at which one thread, as a stream's tasks do, reads a buffer of the handover's size: that of a cache, if it
// fits there. Each size is measured once.
class MeasuredHandovers {
 public:
  double operator()(std::int64_t bytes) {
    const auto [place, is_new] = seconds_.try_emplace(bytes);
    if (is_new) place->second = static_cast<double>(bytes) / bytes_per_second(bytes / 2);  // written, and read
    return place->second;
  }

 private:
  static double bytes_per_second(std::int64_t buffer_bytes) {
    constexpr std::int64_t kSmallest = 4096;
    return measure_memory_bandwidth({.buffer_bytes = std::max(buffer_bytes, kSmallest)}) * 1e9;
  }

  std::map<std::int64_t, double> seconds_;
};

// f(), or nothing, with a word of why, where CUPTI is not there or fails; then the trace is of the CPU's streams.
template <class F>
auto of_gpus(const F& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Failure& failure) {
    write_stderr(fmt::format("heddle: trace: GPUs are left out: {}\n", failure.what()));
    return {};
  }
}

// "trace.json" of rank 2 is "trace.rank2.json".
std::string name_for_rank(const std::string& file, int rank) {
  const std::filesystem::path path(file);
  return path.parent_path() / fmt::format("{}.rank{}{}", path.stem().string(), rank, path.extension().string());
}

// Each process of a run over several machines has a trace of its own, as their clocks differ.
TraceOptions of_own_machine(TraceOptions options, int rank) {
  options.output = name_for_rank(options.output, rank);
  for (std::optional<std::string>* file : {&options.report_file, &options.bars_file})
    if (*file) *file = name_for_rank(**file, rank);
  return options;
}

// The tracks of this process and, on the rank that writes the trace, of all others. `status`: of the command.
void gather_traces(const TraceOptions& options, const Launch& launch, int status, Tracer& tracer,
                   std::vector<GpuTrack>& gpu_tracks) {
  // The ranks of a run end together; of one that has failed, some may leave nothing.
  constexpr std::chrono::seconds kForOthers{60}, kAfterFailure{1};
  for (const auto& track : tracer.tracks())
    if (track->rank() < 0) track->set_rank(launch.rank);
  if (launch.rank != 0) return leave_trace_part(options.output, launch, tracer, gpu_tracks);
  const std::vector<int> missing =
      add_trace_parts(options.output, launch, status == 0 ? kForOthers : kAfterFailure, tracer, gpu_tracks);
  if (!missing.empty())
    write_stderr(fmt::format("heddle: trace: nothing was left by rank {}\n", fmt::join(missing, ", ")));
}

// Says what is not in the trace. `dropped`: records of CUPTI.
void tell_of_losses(const Tracer& tracer, std::size_t dropped, std::size_t unplaced_waits) {
  for (const auto& track : tracer.tracks()) dropped += track->dropped();
  for (const GpuWaits& waits : tracer.gpu_waits()) dropped += waits.dropped;
  if (dropped != 0) write_stderr(fmt::format("heddle: trace: {} entries beyond the limit were dropped\n", dropped));
  if (unplaced_waits != 0)
    write_stderr(fmt::format("heddle: trace: {} waits inside kernels are left out: no record of their kernels\n",
                             unplaced_waits));
}

// Writes the files, and returns the report for people.
std::string write_trace(const TraceOptions& options, const Tracer& tracer, const std::vector<GpuTrack>& gpu_tracks) {
  write_file(
      options.output,
      perfetto_json(tracer.tracks(), gpu_tracks).dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n");
  std::size_t entries = 0;
  for (const auto& track : tracer.tracks()) entries += track->entries().size();
  const std::vector<StepShares> shares = step_shares(tracer.tracks(), MeasuredHandovers());
  TraceReport report = report_of(shares, entries);
  if (!gpu_tracks.empty()) {
    add_gpu_report(report, gpu_tracks);
    add_wait_report(report, wait_times(gpu_tracks));
  }
  if (options.bars_file) write_file(*options.bars_file, step_bars_svg(shares));
  if (options.report_file) write_file(*options.report_file, report.record.dump(2) + "\n");
  return report.text;
}

void run_traced(const TraceOptions& given) {
  if (given.command.empty())
    throw_error<InputError>("trace: which command? For example: heddle trace bench flash-decode");
  if (given.command.front() == "trace") throw_error<InputError>("trace: traces another command, not itself");
  const Launch launch = started_by_mpirun() ? read_launch() : Launch{};
  const bool gathers = launch.world_size > 1 && launch.on_one_machine();
  const TraceOptions options = launch.on_one_machine() ? given : of_own_machine(given, launch.rank);
  { const PendingFile unused(options.output); }  // an unwritable file is reported now
  if (options.bars_file) PendingFile{*options.bars_file};
  int status = 0;
  std::string report;
  {
    Tracer tracer;
    std::unique_ptr<GpuActivity> activity;
    if (kHaveCuda && !discover_gpus().gpus.empty()) activity = of_gpus([] { return std::make_unique<GpuActivity>(); });
    status = run_heddle_command(options.command);
    auto [gpu_tracks, dropped] = activity == nullptr ? GpuRecords{} : of_gpus([&] { return activity->collect(); });
    tell_of_losses(tracer, dropped, place_waits(gpu_tracks, tracer.gpu_waits()));
    if (gathers) gather_traces(options, launch, status, tracer, gpu_tracks);
    if (!gathers || launch.rank == 0) report = write_trace(options, tracer, gpu_tracks);
  }
  if (status != 0) throw ExitWith{status};
  write_stderr(report);
}

}  // namespace

void add_trace(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* command = app.add_subcommand("trace",
                                         "Run another command and record what its streams do on the CPU, and the "
                                         "kernels of its GPUs: a trace for Perfetto, "
                                         "and where the time went");
  command->add_option("-o,--output", options->output, "The trace, for ui.perfetto.dev; default trace.json")
      ->type_name("FILE");
  command->add_option("--report", options->report_file, "The report as JSON; it is on standard error in any case")
      ->type_name("FILE");
  command->add_option("--bars", options->bars_file, "A picture of the report: a bar for each variant and rank, as SVG")
      ->type_name("FILE");
  command->prefix_command();
  command->callback([command, options] {
    options->command = command->remaining();
    if (!options->command.empty() && options->command.front() == "--") options->command.erase(options->command.begin());
    run_traced(*options);
  });
}

}  // namespace heddle
