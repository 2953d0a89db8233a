#include "server/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace heddle::server {
namespace {

class PrometheusText {
 public:
  explicit PrometheusText(const std::string& model) {
    std::string escaped;
    for (const char c : model)
      if (c == '"' || c == '\\')
        escaped += std::string("\\") + c;
      else if (c != '\n')
        escaped += c;
    label_ = "model_name=\"" + escaped + "\"";
  }

  void value(const char* name, const char* type, const char* help, double number) {
    head(name, type, help);
    line(name, "", number);
  }

  void head(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP heddle:{} {}\n# TYPE heddle:{} {}\n", name, help, name, type);
  }

  void line(const std::string& name, const std::string& more, double number) {
    fmt::format_to(std::back_inserter(text_), "heddle:{}{{{}{}}} {}\n", name, label_, more, number);
  }

  void histogram(const char* name, const char* help, const Histogram& histogram) {
    head(name, "histogram", help);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
      sum += histogram.counts()[i];
      const std::string bound = i < histogram.bounds().size() ? fmt::format("{}", histogram.bounds()[i]) : "+Inf";
      line(std::string(name) + "_bucket", fmt::format(",le=\"{}\"", bound), static_cast<double>(sum));
    }
    line(std::string(name) + "_sum", "", histogram.sum());
    line(std::string(name) + "_count", "", static_cast<double>(histogram.count()));
  }

  std::string text() && { return std::move(text_); }

 private:
  std::string label_;
  std::string text_;
};

double share_in_use(const EngineStatus& engine) {
  if (engine.num_pages == 0) return 0;
  return static_cast<double>(engine.num_pages - engine.num_free_pages - engine.num_cached_pages) / engine.num_pages;
}

const char* phase_name(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::waiting:
      return "waiting";
    case RequestPhase::prefill:
      return "prefill";
    case RequestPhase::decode:
      break;
  }
  return "decode";
}

const char* state_name(LoopState state) {
  switch (state) {
    case LoopState::loading:
      return "loading";
    case LoopState::running:
      return "running";
    case LoopState::failed:
      return "failed";
    case LoopState::stopped:
      break;
  }
  return "stopped";
}

nlohmann::ordered_json histogram_json(const Histogram& histogram) {
  return {{"bounds_s", std::vector(histogram.bounds().begin(), histogram.bounds().end())},
          {"counts", histogram.counts()},
          {"sum_s", histogram.sum()},
          {"count", histogram.count()}};
}

nlohmann::ordered_json ranks_json(const LiveInput& input) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < input.rates.rank_gbps.size(); ++rank)
    ranks.push_back({{"rank", rank}, {"gbps", input.rates.rank_gbps[rank]}});
  return ranks;
}

}  // namespace

std::string prometheus_text(const Metrics& metrics, const LoopSnapshot& snapshot, const std::string& model) {
  const EngineStatus& engine = snapshot.engine;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  PrometheusText text(model);
  text.value("num_requests_running", "gauge", "Answers that the engine computes.", engine.num_running);
  text.value("num_requests_waiting", "gauge", "Answers that wait for room.", engine.num_waiting);
  text.value("kv_cache_usage_perc", "gauge", "Share of the KV pages that requests hold, 0 to 1.", share_in_use(engine));
  text.value("prefix_cache_queries_total", "counter", "Prompt tokens for which a cached prefix was looked for.",
             number(engine.counters.num_prefix_queries));
  text.value("prefix_cache_hits_total", "counter", "Prompt tokens that were found in the cache.",
             number(engine.counters.num_prefix_hits));
  text.value("num_preemptions_total", "counter", "Answers that lost their pages and were computed again.",
             number(engine.counters.num_preemptions));
  text.value("prompt_tokens_total", "counter", "Prompt tokens of accepted requests.",
             number(metrics.num_prompt_tokens));
  text.value("generation_tokens_total", "counter", "Tokens of answers.", number(metrics.num_generated));
  text.head("request_success_total", "counter", "Answers that have ended, by reason.");
  std::map<std::string, std::int64_t> finished{
      {"abort", metrics.num_cancelled}, {"length", 0}, {"stop", 0}, {"tool_calls", 0}};  // from the start, for rate()
  std::int64_t num_failed = 0;
  for (const auto& [reason, count] : metrics.finished) (reason == "error" ? num_failed : finished[reason]) += count;
  for (const auto& [reason, count] : finished)
    text.line("request_success_total", fmt::format(",finished_reason=\"{}\"", reason), number(count));
  text.value("requests_failed_total", "counter", "Answers that have ended with an error.", number(num_failed));
  text.value("requests_rejected_total", "counter", "Requests answered by 429.", number(metrics.num_rejected));
  text.value("requests_cancelled_total", "counter", "Answers whose client has gone.", number(metrics.num_cancelled));
  text.value("iterations_total", "counter", "Steps of the engine.", number(snapshot.num_steps));
  text.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", metrics.ttft);
  text.histogram("inter_token_latency_seconds", "Between two tokens of an answer.", metrics.itl);
  text.histogram("request_time_per_output_token_seconds", "An answer's mean time per token after the first.",
                 metrics.tpot);
  text.histogram("e2e_request_latency_seconds", "From a request's arrival to its last token.", metrics.e2e);
  text.histogram("request_queue_time_seconds", "From a request's arrival to its first step.", metrics.queue);
  text.histogram("request_prefill_time_seconds", "From the first step to the first token.", metrics.prefill);
  text.histogram("request_decode_time_seconds", "From the first token to the last.", metrics.decode);
  text.histogram("request_inference_time_seconds", "From the first step to the last token.", metrics.inference);
  text.histogram("request_prompt_tokens", "Tokens of an answer's prompt.", metrics.prompt_tokens);
  text.histogram("request_generation_tokens", "Tokens of an answer.", metrics.answer_tokens);
  text.histogram("request_max_num_generation_tokens", "Tokens of a request's longest answer.",
                 metrics.most_answer_tokens);
  text.histogram("request_params_n", "n of a request.", metrics.num_answers);
  text.histogram("request_params_max_tokens", "max_tokens of requests that say it.", metrics.max_tokens);
  text.histogram("iteration_tokens_total", "Tokens of a step, of prompts and answers.", snapshot.step_tokens);
  text.head("cache_config_info", "gauge", "The KV cache.");
  text.line("cache_config_info",
            fmt::format(",block_size=\"{}\",num_gpu_blocks=\"{}\"", engine.page_size, engine.num_pages), 1);
  return std::move(text).text();
}

RecentRates::Rates RecentRates::update(const LoopSnapshot& snapshot, Clock::time_point now) {
  constexpr std::chrono::seconds kWindow{1};
  points_.push_back({now, snapshot.num_sampled, snapshot.num_prompt_tokens, snapshot.num_steps, snapshot.bytes_read,
                     snapshot.step_seconds, snapshot.engine.rank_bytes});
  while (points_.size() > 2 && now - points_[1].time >= kWindow) points_.pop_front();
  const Point& first = points_.front();
  const Point& last = points_.back();
  const double seconds = std::chrono::duration<double>(last.time - first.time).count();
  if (seconds <= 0) return {};
  const double busy = last.seconds - first.seconds;
  std::vector<double> rank_gbps(last.rank_bytes.size());
  for (std::size_t rank = 0; rank < rank_gbps.size() && busy > 0; ++rank) {
    const double before = rank < first.rank_bytes.size() ? first.rank_bytes[rank] : 0;
    rank_gbps[rank] = (last.rank_bytes[rank] - before) / busy / 1e9;
  }
  return {.output_tokens_per_s = static_cast<double>(last.sampled - first.sampled) / seconds,
          .prompt_tokens_per_s = static_cast<double>(last.prompt - first.prompt) / seconds,
          .steps_per_s = static_cast<double>(last.steps - first.steps) / seconds,
          .gbps = busy > 0 ? (last.bytes - first.bytes) / busy / 1e9 : 0,
          .rank_gbps = std::move(rank_gbps)};
}

std::string live_json(const LiveInput& input) {
  const LoopSnapshot& snapshot = input.snapshot;
  const EngineStatus& engine = snapshot.engine;
  nlohmann::ordered_json requests = nlohmann::ordered_json::array();
  for (const RunningRequest& request : snapshot.requests) {
    const auto id = input.request_ids.find(request.ticket);
    requests.push_back({{"id", id == input.request_ids.end() ? std::string() : id->second},
                        {"state", phase_name(request.progress.phase)},
                        {"prompt_tokens", request.progress.num_prompt_tokens},
                        {"output_tokens", request.progress.num_output_tokens},
                        {"computed_tokens", request.progress.num_computed},
                        {"kv_pages", request.progress.num_pages}});
  }
  const double share = input.memory_gbps > 0 ? input.rates.gbps / input.memory_gbps : 0;
  const nlohmann::ordered_json live{
      {"state", state_name(snapshot.state)},
      {"model", input.model},
      {"uptime_s", input.uptime_seconds},
      {"queue", {{"waiting", engine.num_waiting}, {"max", input.max_queue}, {"outstanding", input.num_outstanding}}},
      {"batch", {{"running", engine.num_running}, {"slots", input.max_sequences}}},
      {"pages",
       {{"total", engine.num_pages},
        {"free", engine.num_free_pages},
        {"cached", engine.num_cached_pages},
        {"tokens_per_page", engine.page_size}}},
      {"prefix",
       {{"queried_tokens", engine.counters.num_prefix_queries}, {"hit_tokens", engine.counters.num_prefix_hits}}},
      {"preemptions", engine.counters.num_preemptions},
      {"rates",
       {{"output_tokens_per_s", input.rates.output_tokens_per_s},
        {"prompt_tokens_per_s", input.rates.prompt_tokens_per_s},
        {"steps_per_s", input.rates.steps_per_s}}},
      {"memory",
       {{"gbps", input.rates.gbps},
        {"roofline_gbps", input.memory_gbps > 0 ? nlohmann::ordered_json(input.memory_gbps) : nlohmann::ordered_json()},
        {"share", input.memory_gbps > 0 ? nlohmann::ordered_json(share) : nlohmann::ordered_json()}}},
      {"ranks", ranks_json(input)},
      {"ttft", histogram_json(input.metrics.ttft)},
      {"itl", histogram_json(input.metrics.itl)},
      {"totals",
       {{"prompt_tokens", input.metrics.num_prompt_tokens},
        {"output_tokens", input.metrics.num_generated},
        {"rejected", input.metrics.num_rejected},
        {"cancelled", input.metrics.num_cancelled},
        {"finished", input.metrics.finished}}},
      {"requests", std::move(requests)}};
  return live.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace heddle::server
