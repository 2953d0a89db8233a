// heddle bench token-weave: the figures of TokenWeave, measured here. A figure is a function of this header's parts in a
// file of its own or of related figures, and a row of the table in token_weave.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "base/function_ref.h"
#include "cli/bench/svg_chart.h"
#include "cli/model_options.h"
#include "fabric/fabric.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"

namespace CLI {
class App;
}

namespace heddle {

struct TokenWeaveOptions {
  int figure = 0;
  std::vector<int> tokens;     // of a call or of a step; empty: what suits the figure
  std::optional<int> repeats;  // nothing: what suits the figure

  // Of operators.
  std::vector<Device> devices;               // one for each rank
  std::vector<int> sms;                      // of sweeps, on GPUs; empty: 2 to 132
  std::vector<AllReduceNormRegime> regimes;  // figure 4 has the fused operator in each of them, too
  int hidden = 8192;
  std::optional<DType> dtype;  // of what is summed; nothing: float32 on the CPU, bfloat16 on GPUs

  // Of models, whose ranks are those of `model`; --device and --dtype of operators come from it, too.
  ModelOptions model;
  std::vector<std::string> lengths;  // of traces: "PROMPT:ANSWER"; empty: what suits the device
  std::string trace_file;            // of traces: JSONL of lengths; empty: none
  std::vector<int> step_tokens;      // of traces: tokens of a step at most; empty: what suits figure and device
  int num_prompts = 16;              // of traces

  std::optional<std::string> json_file;
  std::string svg_file;  // empty: none

  bool on_gpus() const { return devices.front().kind == DeviceKind::cuda; }
  DType measured_dtype() const { return dtype.value_or(on_gpus() ? DType::bfloat16 : DType::float32); }
};

struct TokenWeaveResult {
  std::string svg;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();  // of the record
  std::vector<std::vector<std::string>> cells;                    // of the table, the head first
};

// Runs rank_main on every device's rank, as threads of this process, with heaps of that size. Returns when all have
// returned; throws the first error.
void run_weave_ranks(const TokenWeaveOptions& options, std::size_t heap_bytes,
                     FunctionRef<void(Fabric&, Stream&)> rank_main);

// Figures 4 (all-reduce and norm three ways; of one rank the norm alone and inside the fused operator), 5 (all-reduce against reduce-scatter and all-gather), 6 (bandwidth of the
// reduce-scatter), 7 and 10 (SMs of the all-reduce; of the fused operator).
TokenWeaveResult measure_norm_figure(const TokenWeaveOptions& options);

// Figures 1 (what communication adds to a step), 9 (splits), 11 (latency) and 14 (one layer).
TokenWeaveResult measure_step_figure(const TokenWeaveOptions& options);

// Figure 3: what the norms of whole rows, all but the first behind an all-reduce, take of a step.
TokenWeaveResult measure_norm_share_figure(const TokenWeaveOptions& options);

// Figures 12 (throughput of traces) and 13 (by the tokens of a step).
TokenWeaveResult measure_trace_figure(const TokenWeaveOptions& options);

void add_token_weave_benchmark(CLI::App& bench);

}  // namespace heddle
