// The parts of `heddle bench serve` that need no server and no clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/bench/event_stream.h"
#include "cli/bench/serve_load.h"
#include "cli/bench/serve_report.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EventStream, GivesTheSameDataHoweverTheBytesAreCut) {
  const std::string text = "data: {\"a\": 1}\r\n\r\n: a comment\nevent: x\ndata:two\n\ndata: [DONE]\n\ndata: cut off";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    EventStream stream;
    std::vector<std::string> data;
    for (std::size_t i = 0; i < text.size(); i += step)
      ASSERT_TRUE(stream.push(std::string_view(text).substr(i, step), [&](auto line) { data.emplace_back(line); }));
    EXPECT_THAT(data, ElementsAre("{\"a\": 1}", "two", "[DONE]")) << "in steps of " << step;
  }
}

TEST(EventStream, RejectsALineWithoutEnd) {
  EventStream stream;
  const std::string part(EventStream::kMaxLineBytes / 2 + 1, 'x');
  EXPECT_TRUE(stream.push(part, [](auto) {}));
  EXPECT_FALSE(stream.push(part, [](auto) {}));
}

TEST(ServeLoad, IsTheSameForTheSameSeed) {
  const ServeLoadOptions options{.num_requests = 50, .rate = 5, .range = 0.5, .seed = 7};
  const auto one = plan_load(options).requests;
  const auto two = plan_load(options).requests;
  ASSERT_EQ(one.size(), 50U);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].arrival_s, two[i].arrival_s);
    EXPECT_EQ(one[i].prompt_tokens, two[i].prompt_tokens);
    EXPECT_GE(one[i].prompt_tokens, 128);
    EXPECT_LE(one[i].prompt_tokens, 384);
  }
}

// The mean of gaps is 1 / rate and their standard deviation 1 / (rate sqrt(burstiness)); bounds are 5 standard errors.
TEST(ServeLoad, ArrivalsHaveTheRateAndTheBurstiness) {
  constexpr int kRequests = 20'000;
  for (const double burstiness : {0.5, 1.0, 4.0}) {
    const auto load = plan_load({.num_requests = kRequests, .rate = 8, .burstiness = burstiness}).requests;
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 1; i < load.size(); ++i) {
      const double gap = load[i].arrival_s - load[i - 1].arrival_s;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / (kRequests - 1);
    const double deviation = std::sqrt(squares / (kRequests - 1) - mean * mean);
    EXPECT_NEAR(mean * 8, 1, 5 / std::sqrt(burstiness * kRequests)) << burstiness;
    EXPECT_NEAR(deviation * 8 * std::sqrt(burstiness), 1, 0.1) << burstiness;
  }
}

TEST(ServeLoad, WithoutARateAllArriveAtOnce) {
  const LoadPlan plan = plan_load({.num_requests = 5, .prompt_tokens = 9, .output_tokens = 4});
  EXPECT_FALSE(plan.traced_arrivals);
  for (const LoadRequest& request : plan.requests) {
    EXPECT_EQ(request.arrival_s, 0);
    EXPECT_EQ(request.prompt_tokens, 9);
    EXPECT_EQ(request.output_tokens, 4);
  }
}

TEST(ServeLoad, ATraceGivesLengthsAndArrivals) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "trace.jsonl").string();
  std::ofstream(file) << R"({"prompt_tokens": 10, "output_tokens": 2, "arrival_s": 1.5}
{"prompt_tokens": 20, "output_tokens": 3})";
  const LoadPlan plan = plan_load({.trace = file});
  EXPECT_TRUE(plan.traced_arrivals);
  ASSERT_EQ(plan.requests.size(), 2U);            // as many as lines
  EXPECT_EQ(plan.requests[0].prompt_tokens, 20);  // in order of arrival
  EXPECT_EQ(plan.requests[1].prompt_tokens, 10);
  EXPECT_EQ(plan.requests[1].arrival_s, 1.5);
  EXPECT_FALSE(plan_load({.rate = 3, .trace = file}).traced_arrivals);
  std::ofstream(file) << R"({"prompt_tokens": 0, "output_tokens": 3})";
  try {
    plan_load({.trace = file});
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("trace.jsonl:1: prompt_tokens"));
  }
}

TEST(ServeLoad, ATraceIsRepeatedLaterEachTime) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "trace.jsonl").string();
  std::ofstream(file) << R"({"prompt_tokens": 10, "output_tokens": 2, "arrival_s": 0}
{"prompt_tokens": 20, "output_tokens": 3, "arrival_s": 0.5})";
  const auto load = plan_load({.num_requests = 5, .trace = file}).requests;
  ASSERT_EQ(load.size(), 5U);
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load[i].arrival_s, 0.5 * static_cast<double>(i));
    EXPECT_EQ(load[i].prompt_tokens, i % 2 == 0 ? 10 : 20);
  }
}

TEST(ServeReport, FollowsTheDefinitions) {
  const std::vector<ServedAnswer> answers{
      {.sent = 0, .chunks = {0.5, 0.6, 0.8}, .ended = 0.9, .prompt_tokens = 10, .output_tokens = 5},
      {.sent = 1, .chunks = {1.1}, .ended = 1.2, .prompt_tokens = 20, .output_tokens = 1},
      {.sent = 2, .ended = 2.5, .prompt_tokens = 30, .error = "429: busy"},
  };
  const auto figures = serve_figures(answers, 2, {.ttft_s = 0.2});
  EXPECT_EQ(figures["completed"], 2);
  EXPECT_EQ(figures["failed"], 1);
  EXPECT_EQ(figures["errors"]["429: busy"], 1);
  EXPECT_EQ(figures["output_tokens"], 6);
  EXPECT_DOUBLE_EQ(figures["requests_per_s"], 1);
  EXPECT_DOUBLE_EQ(figures["output_tokens_per_s"], 3);
  EXPECT_DOUBLE_EQ(figures["total_tokens_per_s"], 18);
  EXPECT_NEAR(figures["ttft_ms"]["mean"], 300, 1e-9);
  EXPECT_NEAR(figures["tpot_ms"]["mean"], 100, 1e-9);  // (0.9 - 0.5) / 4; the other has one token
  EXPECT_NEAR(figures["itl_ms"]["max"], 200, 1e-9);
  EXPECT_NEAR(figures["e2el_ms"]["median"], 550, 1e-9);
  EXPECT_DOUBLE_EQ(figures["goodput"]["requests_per_s"], 0.5);
}

TEST(ServeReport, DrawsLatencyOverThroughputInTheOrderOfCases) {
  const std::vector<ServedAnswer> answers{{.sent = 0, .chunks = {0.5, 0.6}, .ended = 0.7, .output_tokens = 2}};
  const nlohmann::ordered_json cases{serve_figures(answers, 1, {}), serve_figures({}, 1, {}),
                                     serve_figures(answers, 2, {})};
  const SvgChart chart = latency_chart(cases, "a <model>");
  ASSERT_EQ(chart.series.size(), 6U);
  EXPECT_EQ(chart.series[0].name, "TTFT mean");
  ASSERT_EQ(chart.series[0].points.size(), 2U);  // the case without answers has none
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, 2);
  EXPECT_DOUBLE_EQ(chart.series[0].points[1].x, 1);
  EXPECT_NEAR(chart.series[0].points[0].y, 500, 1e-9);
  EXPECT_EQ(chart.series[5].name, "E2EL p99");
  EXPECT_NEAR(chart.series[5].points[1].y, 700, 1e-9);
  EXPECT_THAT(svg_of(chart), HasSubstr("a &lt;model&gt;"));
}

TEST(ServeReport, HasNullsWithoutAnswers) {
  const auto figures = serve_figures({}, 0, {});
  EXPECT_EQ(figures["completed"], 0);
  EXPECT_TRUE(figures["ttft_ms"].is_null());
  EXPECT_EQ(figures["requests_per_s"], 0);
  EXPECT_FALSE(figures.contains("goodput"));
}

}  // namespace
}  // namespace heddle
