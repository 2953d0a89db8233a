#include "cli/bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/jsonl.h"

namespace heddle {
namespace {

constexpr int kMostLength = 1 << 20;
constexpr std::size_t kMaxTraceBytes = std::size_t{256} << 20;
constexpr double kLatestArrival = 1e6;

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

}  // namespace

std::vector<LoadRequest> plan_load(const ServeLoadOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<LoadRequest> trace;
  if (options.trace) trace = read_trace(*options.trace);
  std::vector<LoadRequest> requests;
  for (int i = 0; i < options.num_requests; ++i) {
    if (!trace.empty()) {
      requests.push_back(trace[static_cast<std::size_t>(i) % trace.size()]);
    } else {
      const int prompt = drawn_length(options.prompt_tokens, options.range, random);
      requests.push_back(
          {.prompt_tokens = prompt, .output_tokens = drawn_length(options.output_tokens, options.range, random)});
    }
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
  return requests;
}

}  // namespace heddle
