// heddle trace: runs another command of heddle and records what its streams do.
#include <CLI/CLI.hpp>
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

// Bytes per second at which one thread reads memory, as a stream's tasks do.
double reading_rate() {
  return measure_memory_bandwidth({.buffer_bytes = std::int64_t{64} << 20, .passes = 5}) * 1e9;
}

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

void run_traced(const TraceOptions& options) {
  if (options.command.empty())
    throw_error<InputError>("trace: which command? For example: heddle trace bench flash-decode");
  if (options.command.front() == "trace") throw_error<InputError>("trace: traces another command, not itself");
  { const PendingFile unused(options.output); }  // an unwritable file is reported now
  if (options.bars_file) PendingFile{*options.bars_file};
  int status = 0;
  TraceReport report;
  {
    Tracer tracer;
    std::unique_ptr<GpuActivity> activity;
    if (kHaveCuda && !discover_gpus().gpus.empty()) activity = of_gpus([] { return std::make_unique<GpuActivity>(); });
    status = run_heddle_command(options.command);
    auto [gpu_tracks, dropped] = activity == nullptr ? GpuRecords{} : of_gpus([&] { return activity->collect(); });
    std::size_t entries = 0;
    for (const auto& track : tracer.tracks()) {
      dropped += track->dropped();
      entries += track->entries().size();
    }
    for (const GpuWaits& waits : tracer.gpu_waits()) dropped += waits.dropped;
    if (dropped != 0) write_stderr(fmt::format("heddle: trace: {} entries beyond the limit were dropped\n", dropped));
    if (const std::size_t unplaced = place_waits(gpu_tracks, tracer.gpu_waits()); unplaced != 0)
      write_stderr(
          fmt::format("heddle: trace: {} waits inside kernels are left out: no record of their kernels\n", unplaced));
    write_file(
        options.output,
        perfetto_json(tracer.tracks(), gpu_tracks).dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n");
    const std::vector<StepShares> shares =
        step_shares(tracer.tracks(), has_handovers(tracer.tracks()) ? reading_rate() : 0);
    report = report_of(shares, entries);
    if (!gpu_tracks.empty()) {
      add_gpu_report(report, gpu_tracks);
      add_wait_report(report, wait_times(gpu_tracks));
    }
    if (options.bars_file) write_file(*options.bars_file, step_bars_svg(shares));
  }
  if (options.report_file) write_file(*options.report_file, report.record.dump(2) + "\n");
  if (status != 0) throw ExitWith{status};
  write_stderr(report.text);
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
