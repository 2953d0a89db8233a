// heddle bench: its parts and what they share. One file a benchmark.
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
  // Of decode and operator: (batch, context), in place of all pairs of the two above.
  std::vector<std::pair<int, int>> cases;
  std::vector<int> prompts{512};  // bench prefill: tokens of each sequence
  int tokens = 0;                 // 0: what the benchmark takes for it
  int step_tokens = 0;            // bench prefill: of a step of all sequences; 0: what the engine takes
  int repeats = 10;
  std::vector<std::string> operators;    // bench operator; empty: all
  int page_size = 0;                     // of decode, prefill and operator; 0: the engine's
  std::string peer;                      // of decode, prefill, operator and load: "llama.cpp", "torch"; empty: none
  std::string text_file;                 // bench tokenize
  std::optional<std::string> json_file;  // set: JSON is wanted; empty: on standard output, instead of the table
};

// What a benchmark found: fields of its own for the record, and a table for a person.
struct BenchResult {
  nlohmann::ordered_json fields;
  std::string table;
  std::string failure;  // what is to be said after the table, as an error; empty: nothing
};

BenchResult bench_decode(const BenchOptions& options);
BenchResult bench_prefill(const BenchOptions& options);
BenchResult bench_operator(const BenchOptions& options);
BenchResult bench_load(const BenchOptions& options);
BenchResult bench_tokenize(const BenchOptions& options);
BenchResult bench_wafer(const BenchOptions& options);

// Throws Interrupted when a signal has come.
void stop_if_interrupted(const InterruptGuard& guard);

}  // namespace heddle
