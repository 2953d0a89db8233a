// What a measurement is recorded with, and how its samples are summed up.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/bench.h"

namespace CLI {
class App;
}

namespace heddle {

// `--json [FILE]`: set, the record is wanted as JSON; empty, on standard output in place of the table. `json_file`
// lives as long as `command`.
void add_json_option(CLI::App& command, std::optional<std::string>& json_file);

// The head of a record: benchmark, program, commit, command, date, machine, and what the model was run with.
nlohmann::ordered_json bench_record(const std::string& kind, const BenchOptions& options);

// Of each processor, as the system tells now; empty where it does not.
std::vector<double> clock_mhz();

// The q-quantile, between neighbours by linear interpolation; 0 of no samples.
double quantile(std::span<const double> samples, double q);
double median(std::span<const double> samples);

// {"median", "p10", "p90", "samples"}
nlohmann::ordered_json spread(std::span<const double> samples);

// a[i] / b[i]
std::vector<double> ratios(std::span<const double> a, std::span<const double> b);

// {"peer_seconds", "ratio_of_medians", "paired_ratio"} of samples that were taken in turns. Above 1: Heddle is faster.
nlohmann::ordered_json beside_peer(std::span<const double> seconds, std::span<const double> peer_seconds);

// Rows of cells as a table: the first row is the head; each column as wide as its widest cell, numbers to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace heddle
