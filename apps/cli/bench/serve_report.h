// What `heddle bench serve` makes of its answers. The definitions are those of vLLM's serving benchmark.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/svg_chart.h"

namespace heddle {

// Times in seconds since the start of the run.
struct ServedAnswer {
  double sent = 0;             // when the request left
  std::vector<double> chunks;  // when each piece of text came
  double ended = 0;
  int prompt_tokens = 0;
  int output_tokens = 0;  // as the server counts them, else one for each piece
  std::string error;      // not empty: it failed, and the rest does not count
};

// A request is good if it keeps all limits that are set.
struct Goodput {
  std::optional<double> ttft_s;
  std::optional<double> tpot_s;
  std::optional<double> e2el_s;
};

// TTFT: from sending to the first piece of text. TPOT: (end - first piece) / (output tokens - 1), of answers with at least
// two. ITL: gaps between pieces. E2EL: from sending to the end. Each as {"mean", "median", "p90", "p99", "max"} in
// milliseconds, null without samples; then counts, rates a second over `duration_s`, and "goodput" if a limit is set.
nlohmann::ordered_json serve_figures(std::span<const ServedAnswer> answers, double duration_s, const Goodput& goodput);

// Latency over throughput: a point for each of `cases` (figures of serve_figures) in their order, at its output tokens a
// second; a line for each of TTFT, TPOT and E2EL, mean and p99, in milliseconds. Cases without answers have no point.
SvgChart latency_chart(const nlohmann::ordered_json& cases, const std::string& title);

}  // namespace heddle
