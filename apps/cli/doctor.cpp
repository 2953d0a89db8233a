// heddle doctor: what this machine has, its measured limits, what this build can use of it, and why not more.
#include <fmt/ranges.h>
#include <hwloc.h>
#include <unicode/uversion.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/cuda_runtime.h"
#include "base/device.h"
#include "base/error.h"
#include "base/sanitizer.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/output.h"
#include "kernels/cpu_target.h"
#include "machine/cpu.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/measure.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct DoctorOptions {
  bool json = false;
};

struct Measured {
  std::map<int, double> memory_gbps;  // by number of threads
  std::map<int, double> float32_gflops;
  std::string why_not;  // when something could not be measured
};

struct MachineReport {
  CpuInfo cpu;
  GpuDiscovery gpus;
  std::vector<std::string> installed_gpus;
  Measured measured;
  std::filesystem::path tuned_store;
  std::vector<std::string> unusable;     // per GPU: why it cannot run Heddle's kernels; empty: it can
  std::vector<std::string> free_memory;  // per GPU
  DeviceChoice device;                   // the choice of --device auto, for a model that fits
};

std::map<std::string, std::string> library_versions() {
  UVersionInfo icu;
  u_getVersion(icu);
  return {
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"CLI11", CLI11_VERSION},
      {"ICU", fmt::format("{}.{}", icu[0], icu[1])},
      {"Highway", highway_version()},
      {"hwloc", HWLOC_VERSION},
  };
}

// Clang also claims to be GCC 4.2.
std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "an unknown compiler";
#endif
}

std::vector<std::string> sanitizers() {
  std::vector<std::string> names;
  if (kAddressSanitizer) names.emplace_back("address");
  if (kThreadSanitizer) names.emplace_back("thread");
  return names;
}

Measured measure(const CpuInfo& cpu, TunedStore& store) {
  Measured measured;
  try {
    for (const int threads : std::set<int>{1, cpu.usable_threads}) {
      measured.memory_gbps[threads] = remeasure_memory_bandwidth_gbps(store, threads);
      measured.float32_gflops[threads] = measure_float32_rate({.threads = threads});
    }
  } catch (const Failure& failure) {
    measured.why_not = failure.what();
  }
  return measured;
}

std::string free_memory_of(int index) {
  if constexpr (kHaveCuda) {
    try {
      return size_text(cuda::memory_info(index).free_bytes);
    } catch (const Failure&) {  // a GPU that exists and does not answer
    }
  }
  return "an unknown part of its memory is";
}

MachineReport examine() {
  MachineReport report{.cpu = discover_cpu(), .gpus = discover_gpus(), .installed_gpus = installed_gpus()};
  TunedStore store(default_tuned_store_file(), machine_key(report.cpu, report.installed_gpus), HEDDLE_VERSION);
  report.measured = measure(report.cpu, store);
  report.tuned_store = store.file();
  for (int i = 0; i < static_cast<int>(report.gpus.gpus.size()); ++i) {
    report.unusable.push_back(why_unusable(report.gpus, i));
    report.free_memory.push_back(free_memory_of(i));
  }
  report.device = choose_device(std::nullopt, report.gpus, [](Device) { return std::string(); });
  return report;
}

ordered_json json_of(const MachineReport& report) {
  const CpuInfo& cpu = report.cpu;
  ordered_json caches = ordered_json::array();
  for (const CpuCache& cache : cpu.caches)
    caches.push_back({{"level", cache.level},
                      {"size_bytes", cache.size_bytes},
                      {"count", cache.count},
                      {"shared_by_threads", cache.shared_by}});
  const auto by_threads = [](const std::map<int, double>& rates) {
    ordered_json result = ordered_json::array();
    for (const auto& [threads, rate] : rates) result.push_back({{"threads", threads}, {"rate", rate}});
    return result;
  };
  ordered_json gpus = ordered_json::array();
  for (std::size_t i = 0; i < report.gpus.gpus.size(); ++i) {
    const GpuInfo& gpu = report.gpus.gpus[i];
    gpus.push_back({{"name", gpu.name},
                    {"why_unusable", report.unusable[i]},
                    {"compute_capability", fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor)},
                    {"num_sms", gpu.num_sms},
                    {"memory_bytes", gpu.memory_bytes},
                    {"l2_cache_bytes", gpu.l2_cache_bytes},
                    {"memory_bandwidth_gbps", gpu.memory_bandwidth_gbps},
                    {"peers", gpu.peers}});
  }
  return {
      {"heddle", HEDDLE_VERSION},
      {"cpu",
       {{"model", cpu.model},
        {"sockets", cpu.sockets},
        {"numa_nodes", cpu.numa_nodes},
        {"cores", cpu.cores},
        {"hardware_threads", cpu.hardware_threads},
        {"usable_threads", cpu.usable_threads},
        {"simd", cpu.simd},
        {"caches", caches}}},
      {"memory", {{"size_bytes", cpu.memory_bytes}, {"available_bytes", cpu.available_memory_bytes}}},
      {"measured",
       {{"memory_read_gbps", by_threads(report.measured.memory_gbps)},
        {"float32_gflops", by_threads(report.measured.float32_gflops)},
        {"why_not", report.measured.why_not}}},
      {"gpus", gpus},
      {"installed_gpus", report.installed_gpus},
      {"why_no_gpus", report.gpus.why_none},
      {"device", {{"automatic", name_of(report.device.device)}, {"reason", report.device.reason}}},
      {"libraries", library_versions()},
      {"build",
       {{"compiler", compiler()},
        {"cuda", kHaveCuda},
        {"cuda_runtime", report.gpus.runtime_version},
        {"cuda_driver", report.gpus.driver_version},
        {"simd_target", cpu_target().name},
        {"bfloat16_tiles", cpu_target().bfloat16_tiles},
        {"sanitizers", sanitizers()}}},
      {"tuned_store", report.tuned_store.string()},
  };
}

// 0: unknown.
std::string known_size_text(std::int64_t size_bytes) {
  return size_bytes == 0 ? "unknown" : size_text(static_cast<std::uint64_t>(size_bytes));
}

std::string rates_text(const std::map<int, double>& rates, std::string_view unit) {
  std::string text;
  for (const auto& [threads, rate] : rates)
    text += fmt::format("{}{:.1f} {} with {}", text.empty() ? "" : ", ", rate, unit, count_text(threads, "thread"));
  return text;
}

// Lines of title and value; lines of a section share their indentation.
class Page {
 public:
  void add(std::string_view title, std::string_view text) {
    text_ += fmt::format("{:<12}  {}\n", title, printable_text(text));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_cpu(Page& page, const CpuInfo& cpu) {
  page.add("CPU", cpu.model);
  page.add("", fmt::format("{}, {}, {}, {}; {} may be used", count_text(cpu.sockets, "socket"),
                           count_text(cpu.numa_nodes, "NUMA node"), count_text(cpu.cores, "core"),
                           count_text(cpu.hardware_threads, "thread"), cpu.usable_threads));
  page.add("SIMD", fmt::format("{}; kernels use {}", fmt::join(cpu.simd, " "), describe(cpu_target())));
  for (const CpuCache& cache : cpu.caches)
    page.add(fmt::format("L{} cache", cache.level),
             fmt::format("{} x {}, {} each", cache.count, known_size_text(cache.size_bytes),
                         count_text(cache.shared_by, "thread")));
  page.add("memory", fmt::format("{}, {} available", known_size_text(cpu.memory_bytes),
                                 known_size_text(cpu.available_memory_bytes)));
}

void add_measured(Page& page, const Measured& measured, const std::filesystem::path& store) {
  page.add("memory read", rates_text(measured.memory_gbps, "GB/s"));
  page.add("float32", rates_text(measured.float32_gflops, "GFLOP/s"));
  if (!measured.why_not.empty()) page.add("", "not measured: " + measured.why_not);
  page.add("tuned store",
           store.empty() ? "none: HEDDLE_CACHE_DIR, XDG_CACHE_HOME and HOME are not set" : store.string());
}

void add_gpus(Page& page, const MachineReport& report) {
  if (report.gpus.gpus.empty()) page.add("GPUs", "none: " + report.gpus.why_none);
  if (report.gpus.gpus.empty() && !report.installed_gpus.empty())
    page.add("", fmt::format("the NVIDIA driver has in hand: {}", fmt::join(report.installed_gpus, ", ")));
  for (std::size_t i = 0; i < report.gpus.gpus.size(); ++i) {
    const GpuInfo& gpu = report.gpus.gpus[i];
    page.add(fmt::format("GPU {}", i), fmt::format("{}, {} at {:.0f} GB/s, {} SMs, compute capability {}.{}", gpu.name,
                                                   known_size_text(gpu.memory_bytes), gpu.memory_bandwidth_gbps,
                                                   gpu.num_sms, gpu.compute_major, gpu.compute_minor));
    page.add("", report.unusable[i].empty() ? fmt::format("runs Heddle's kernels; {} free", report.free_memory[i])
                                            : report.unusable[i]);
    page.add("", gpu.peers.empty() ? std::string("reaches no other GPU directly")
                                   : fmt::format("reaches directly: GPU {}", fmt::join(gpu.peers, ", ")));
  }
  page.add("device", fmt::format("models run on {} unless told otherwise: {}", name_of(report.device.device),
                                 report.device.reason));
  page.add("CUDA", !kHaveCuda ? std::string("not in this build; HEDDLE_PRESET=cuda ./run.sh builds it, with nvcc")
                              : fmt::format("runtime {}, driver {}", report.gpus.runtime_version,
                                            report.gpus.driver_version.empty() ? "none" : report.gpus.driver_version));
}

std::string text_of(const MachineReport& report) {
  Page page;
  page.add("heddle", fmt::format("{}, compiled by {}", HEDDLE_VERSION, compiler()));
  add_cpu(page, report.cpu);
  add_measured(page, report.measured, report.tuned_store);
  add_gpus(page, report);
  std::string libraries;
  for (const auto& [name, version] : library_versions())
    libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, version);
  page.add("libraries", libraries);
  const std::vector<std::string> sanitizer_names = sanitizers();
  page.add("sanitizers", sanitizer_names.empty() ? "off" : fmt::format("{}", fmt::join(sanitizer_names, ", ")));
  return page.text();
}

void run(const DoctorOptions& options) {
  const MachineReport report = examine();
  write_stdout(options.json ? json_of(report).dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n"
                            : text_of(report));
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Describe this machine: its hardware, the rates it reaches, what this build uses of it");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace heddle
