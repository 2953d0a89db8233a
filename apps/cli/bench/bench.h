// heddle bench: its benchmarks, one file each, and what they share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/interrupt.h"
#include "cli/model_options.h"

namespace heddle {

struct BenchOptions {
  ModelOptions model;
  std::vector<int> batches{1};
  std::vector<int> contexts{0};
  // decode and operator: (batch, context) pairs that replace the product of the two lists above.
  std::vector<std::pair<int, int>> cases;
  std::vector<int> prompts{512};  // bench prefill: tokens of each sequence
  int tokens = 0;                 // 0: the benchmark's default
  int step_tokens = 0;            // prefill: tokens in a step of all sequences; 0: the engine's default
  int repeats = 10;
  std::vector<std::string> operators;  // bench operator; empty: all
  int page_size = 0;                   // decode, prefill and operator; 0: the engine's default
  std::string baseline;   // the baseline of decode, prefill, operator and load: "llama.cpp", "torch"; empty: none
  std::string text_file;  // bench tokenize
  std::optional<std::string> json_file;  // set: write JSON; empty: to standard output, instead of the table
};

// A benchmark's result: its own fields of the record, and a table for display.
struct BenchResult {
  nlohmann::ordered_json fields;
  std::string table;
  std::string failure;  // an error to print after the table; empty: none
};

BenchResult bench_decode(const BenchOptions& options);
BenchResult bench_prefill(const BenchOptions& options);
BenchResult bench_operator(const BenchOptions& options);
BenchResult bench_load(const BenchOptions& options);
BenchResult bench_tokenize(const BenchOptions& options);
BenchResult bench_wafer(const BenchOptions& options);

// Throws Interrupted after a signal.
void stop_if_interrupted(const InterruptGuard& guard);

}  // namespace heddle
