#include "cli/bench/record.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "cli/bench/commit.h"
#include "kernels/cpu_target.h"
#include "machine/cpu.h"
#include "machine/machine.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string date_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

std::string dtype_text(const std::optional<DType>& dtype) {
  return dtype ? std::string(name_of(*dtype)) : "auto";
}

}  // namespace

void add_json_option(CLI::App& command, std::optional<std::string>& json_file) {
  command
      .add_option_function<std::string>(
          "--json", [&json_file](const std::string& file) { json_file = file; },
          "The record as JSON, to FILE or to standard output in place of the table")
      ->expected(0, 1)
      ->type_name("[FILE]");
}

ordered_json bench_record(const std::string& kind, const BenchOptions& options) {
  const CpuInfo cpu = discover_cpu();
  ordered_json record = {
      {"bench", kind},
      {"heddle", HEDDLE_VERSION},
      {"commit", kBenchCommit},
      {"command", command_line()},
      {"date", date_text()},
      {"machine",
       {{"key", machine_key()},
        {"cpu", cpu.model},
        {"simd", cpu.simd},
        {"kernels", describe(cpu_target())},
        {"clock_mhz_before", clock_mhz()}}},
      {"model", options.model.model},
  };
  if (kind == "tokenize" || kind == "wafer" || kind == "serve") return record;
  record["threads"] = num_threads(options.model, cpu.usable_threads);
  record["dtype"] = dtype_text(options.model.dtype);
  record["compute"] = options.model.compute == Compute::float32 ? "float32" : "auto";
  return record;
}

std::vector<double> clock_mhz() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<double> clocks;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const char* begin = line.data() + colon + 1;
    const char* const end = line.data() + line.size();
    while (begin != end && *begin == ' ') ++begin;
    double mhz = 0;
    if (std::from_chars(begin, end, mhz).ec == std::errc()) clocks.push_back(mhz);
  }
  return clocks;
}

ordered_json spread(std::span<const double> samples) {
  return {{"median", median(samples)},
          {"p10", quantile(samples, 0.1)},
          {"p90", quantile(samples, 0.9)},
          {"samples", std::vector<double>(samples.begin(), samples.end())}};
}

std::vector<double> ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) result.push_back(b[i] == 0 ? 0 : a[i] / b[i]);
  return result;
}

ordered_json beside_baseline(std::span<const double> seconds, std::span<const double> baseline_seconds) {
  return {{"peer_seconds", spread(baseline_seconds)},
          {"ratio_of_medians", median(baseline_seconds) / median(seconds)},
          {"paired_ratio", spread(ratios(baseline_seconds, seconds))}};
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      fmt::format_to(std::back_inserter(text), "{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

}  // namespace heddle
