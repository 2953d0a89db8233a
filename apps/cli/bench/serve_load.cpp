#include "cli/bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/jsonl.h"

namespace heddle {
namespace {

constexpr int kMostLength = 1 << 20;
constexpr std::size_t kMaxTraceBytes = std::size_t{256} << 20;
constexpr double kLatestArrival = 1e6;
constexpr int kDefaultRequests = 100;

std::vector<LoadRequest> read_trace(const std::string& file) {
  const InputText input = read_input(file, kMaxTraceBytes);
  std::vector<LoadRequest> requests;
  for (const TextLine& line : split_lines(input.text, input.where)) {
    const std::string where = fmt::format("{}:{}", input.where, line.number);
    const nlohmann::json object = parse_object(line.text, where);
    const JsonField field(object, where);
    LoadRequest request{.prompt_tokens = static_cast<int>(field.at("prompt_tokens").integer(1, kMostLength)),
                        .output_tokens = static_cast<int>(field.at("output_tokens").integer(1, kMostLength))};
    if (const auto arrival = field.find("arrival_s")) request.arrival_s = arrival->number(0, kLatestArrival);
    requests.push_back(request);
  }
  if (requests.empty()) throw_error<InputError>("{}: holds no requests", input.where);
  return requests;
}

int drawn_length(int mean, double range, std::mt19937_64& random) {
  if (range == 0) return mean;
  std::uniform_real_distribution<double> factor(1 - range, 1 + range);
  return std::max(1, static_cast<int>(std::lround(mean * factor(random))));
}

// Seconds between the beginnings of two rounds of a trace: from its first arrival to its last, and a mean gap.
double seconds_of_round(const std::vector<LoadRequest>& trace) {
  const auto [first, last] = std::ranges::minmax(trace, {}, &LoadRequest::arrival_s);
  const double span = last.arrival_s - first.arrival_s;
  return trace.size() > 1 ? span * static_cast<double>(trace.size()) / static_cast<double>(trace.size() - 1) : span;
}

std::vector<LoadRequest> repeated(const std::vector<LoadRequest>& trace, std::size_t count) {
  const double round = seconds_of_round(trace);
  std::vector<LoadRequest> requests;
  requests.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(trace[i % trace.size()]);
    const std::size_t rounds = i / trace.size();
    requests.back().arrival_s += static_cast<double>(rounds) * round;
  }
  return requests;
}

std::vector<LoadRequest> drawn(const ServeLoadOptions& options, int count, std::mt19937_64& random) {
  std::vector<LoadRequest> requests;
  requests.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const int prompt = drawn_length(options.prompt_tokens, options.range, random);
    requests.push_back(
        {.prompt_tokens = prompt, .output_tokens = drawn_length(options.output_tokens, options.range, random)});
  }
  return requests;
}

}  // namespace

LoadPlan plan_load(const ServeLoadOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<LoadRequest> requests;
  if (options.trace) {
    const std::vector<LoadRequest> trace = read_trace(*options.trace);
    const std::size_t count = options.num_requests ? static_cast<std::size_t>(*options.num_requests) : trace.size();
    requests = repeated(trace, count);
  } else {
    requests = drawn(options, options.num_requests.value_or(kDefaultRequests), random);
  }
  if (std::isfinite(options.rate)) {
    std::gamma_distribution<double> gap(options.burstiness, 1 / (options.rate * options.burstiness));
    double now = 0;
    for (LoadRequest& request : requests) {
      request.arrival_s = now;
      now += gap(random);
    }
  }
  std::ranges::stable_sort(requests, {}, &LoadRequest::arrival_s);
  const bool traced = options.trace && !std::isfinite(options.rate) && requests.back().arrival_s > 0;
  return {.requests = std::move(requests), .traced_arrivals = traced};
}

}  // namespace heddle
