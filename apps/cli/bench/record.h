// The record of a measurement, and summaries of its samples.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/bench.h"
#include "cli/bench/quantile.h"

namespace CLI {
class App;
}

namespace heddle {

// `--json [FILE]`: if set, the record is written as JSON; empty: to standard output in place of the table. `json_file`
// lives as long as `command`.
void add_json_option(CLI::App& command, std::optional<std::string>& json_file);

// The head of a record: benchmark, program, commit, command, date, machine, and the model's settings.
nlohmann::ordered_json bench_record(const std::string& kind, const BenchOptions& options);

// Current clock of each processor; empty if unknown.
std::vector<double> clock_mhz();

// {"median", "p10", "p90", "samples"}
nlohmann::ordered_json spread(std::span<const double> samples);

// a[i] / b[i]
std::vector<double> ratios(std::span<const double> a, std::span<const double> b);

// {"peer_seconds", "ratio_of_medians", "paired_ratio"} of interleaved samples. Above 1: Heddle is faster.
nlohmann::ordered_json beside_baseline(std::span<const double> seconds, std::span<const double> baseline_seconds);

// Formats rows of cells as a table: the first row is the head; columns are as wide as their widest cell, numbers are
// right-aligned.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace heddle
