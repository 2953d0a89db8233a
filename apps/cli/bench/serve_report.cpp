#include "cli/bench/serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/bench/quantile.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

ordered_json in_milliseconds(std::span<const double> seconds) {
  if (seconds.empty()) return nullptr;
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return {{"mean", 1e3 * sum / static_cast<double>(seconds.size())},
          {"median", 1e3 * quantile(seconds, 0.5)},
          {"p90", 1e3 * quantile(seconds, 0.9)},
          {"p99", 1e3 * quantile(seconds, 0.99)},
          {"max", 1e3 * *std::ranges::max_element(seconds)}};
}

std::optional<double> time_per_token(const ServedAnswer& answer) {
  if (answer.output_tokens < 2 || answer.chunks.empty()) return std::nullopt;
  return (answer.ended - answer.chunks.front()) / (answer.output_tokens - 1);
}

bool is_good(const ServedAnswer& answer, const Goodput& goodput) {
  const auto keeps = [](std::optional<double> limit, double value) { return !limit || value <= *limit; };
  return !answer.chunks.empty() && keeps(goodput.ttft_s, answer.chunks.front() - answer.sent) &&
         keeps(goodput.tpot_s, time_per_token(answer).value_or(0)) && keeps(goodput.e2el_s, answer.ended - answer.sent);
}

}  // namespace

ordered_json serve_figures(std::span<const ServedAnswer> answers, double duration_s, const Goodput& goodput) {
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  std::vector<double> e2el;
  std::map<std::string, int> errors;
  double prompt_tokens = 0;
  double output_tokens = 0;
  double num_good = 0;
  for (const ServedAnswer& answer : answers) {
    if (!answer.error.empty()) {
      ++errors[answer.error];
      continue;
    }
    prompt_tokens += answer.prompt_tokens;
    output_tokens += answer.output_tokens;
    if (!answer.chunks.empty()) ttft.push_back(answer.chunks.front() - answer.sent);
    if (const auto time = time_per_token(answer)) tpot.push_back(*time);
    for (std::size_t i = 1; i < answer.chunks.size(); ++i) itl.push_back(answer.chunks[i] - answer.chunks[i - 1]);
    e2el.push_back(answer.ended - answer.sent);
    num_good += is_good(answer, goodput) ? 1 : 0;
  }
  const auto per_second = [&](double count) { return duration_s > 0 ? count / duration_s : 0; };
  ordered_json figures = {{"duration_s", duration_s},
                          {"completed", e2el.size()},
                          {"failed", answers.size() - e2el.size()},
                          {"prompt_tokens", prompt_tokens},
                          {"output_tokens", output_tokens},
                          {"requests_per_s", per_second(static_cast<double>(e2el.size()))},
                          {"output_tokens_per_s", per_second(output_tokens)},
                          {"total_tokens_per_s", per_second(prompt_tokens + output_tokens)},
                          {"ttft_ms", in_milliseconds(ttft)},
                          {"tpot_ms", in_milliseconds(tpot)},
                          {"itl_ms", in_milliseconds(itl)},
                          {"e2el_ms", in_milliseconds(e2el)}};
  if (goodput.ttft_s || goodput.tpot_s || goodput.e2el_s)
    figures["goodput"] = {{"requests_per_s", per_second(num_good)},
                          {"share", answers.empty() ? 0 : num_good / static_cast<double>(answers.size())}};
  if (!errors.empty()) figures["errors"] = errors;
  return figures;
}

SvgChart latency_chart(const ordered_json& cases, const std::string& title) {
  SvgChart chart{.title = title, .x_label = "output tokens/s", .y_label = "ms"};
  for (const auto& [name, figure] :
       {std::pair{"TTFT", "ttft_ms"}, std::pair{"TPOT", "tpot_ms"}, std::pair{"E2EL", "e2el_ms"}})
    for (const char* which : {"mean", "p99"}) {
      ChartSeries series{.name = fmt::format("{} {}", name, which)};
      for (const ordered_json& one : cases)
        if (!one.at(figure).is_null())
          series.points.push_back(
              {one.at("output_tokens_per_s").get<double>(), one.at(figure).at(which).get<double>()});
      chart.series.push_back(std::move(series));
    }
  return chart;
}

}  // namespace heddle
