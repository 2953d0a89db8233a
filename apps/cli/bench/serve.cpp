// bench serve: an open loop of requests to a server.
#include "cli/bench/serve.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/record.h"
#include "cli/bench/serve_client.h"
#include "cli/bench/write_record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct ServeBenchOptions {
  ServeTarget target{.url = "http://127.0.0.1:8000"};
  std::optional<std::string> key_file;
  ServeLoadOptions load;
  std::vector<double> rates;
  std::vector<double> concurrencies;
  Goodput goodput;
  std::optional<std::string> json_file;
  std::string svg_file;  // empty: none
};

constexpr const char* kTracedArrivals = "trace";

// "1,2.5,inf"
std::vector<double> parse_numbers(const std::string& name, const std::string& text, double least) {
  std::vector<double> values;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end || !(value >= least))
      throw CLI::ValidationError(name, fmt::format("is \"{}\", expected numbers of at least {}, separated by commas",
                                                   printable_text(text), least));
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

// "ttft:500,tpot:50,e2el:2000", in milliseconds.
Goodput parse_goodput(const std::string& text) {
  Goodput goodput;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const std::size_t colon = std::min(part.find(':'), part.size());
    const std::string_view name = part.substr(0, colon);
    std::optional<double>* limit = name == "ttft"   ? &goodput.ttft_s
                                   : name == "tpot" ? &goodput.tpot_s
                                   : name == "e2el" ? &goodput.e2el_s
                                                    : nullptr;
    double milliseconds = 0;
    const char* last = part.data() + part.size();
    if (limit == nullptr || colon == part.size() ||
        std::from_chars(part.data() + colon + 1, last, milliseconds).ptr != last || !(milliseconds > 0))
      throw CLI::ValidationError(
          "--goodput", fmt::format("is \"{}\", expected limits in milliseconds like ttft:500,tpot:50,e2el:2000",
                                   printable_text(text)));
    *limit = milliseconds / 1e3;
    begin = end + 1;
  }
  return goodput;
}

std::string key_in(const std::string& file) {
  std::string key = read_file(file, 4096);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty() || key.find_first_of("\r\n") != std::string::npos)
    throw_error<InputError>("{}: expected one line, the API key", file);
  return key;
}

std::string milliseconds(const ordered_json& figures, const char* what, const char* which) {
  return figures[what].is_null() ? "-" : fmt::format("{:.1f}", figures[what][which].get<double>());
}

std::vector<std::string> row_of(const ordered_json& figures) {
  return {
      !figures["rate"].is_null()               ? fmt::format("{:g}", figures["rate"].get<double>())
      : figures["arrivals"] == kTracedArrivals ? "trace"
                                               : "all at once",
      figures["concurrency"].is_null() ? "-" : std::to_string(figures["concurrency"].get<int>()),
      fmt::format("{}", figures["completed"].get<int>()),
      fmt::format("{}", figures["failed"].get<int>()),
      fmt::format("{:.2f}", figures["requests_per_s"].get<double>()),
      fmt::format("{:.1f}", figures["output_tokens_per_s"].get<double>()),
      milliseconds(figures, "ttft_ms", "mean"),
      milliseconds(figures, "ttft_ms", "p99"),
      milliseconds(figures, "tpot_ms", "mean"),
      milliseconds(figures, "tpot_ms", "p99"),
      milliseconds(figures, "itl_ms", "p99"),
      milliseconds(figures, "e2el_ms", "mean"),
      figures.contains("goodput") ? fmt::format("{:.2f}", figures["goodput"]["requests_per_s"].get<double>()) : "-"};
}

BenchResult bench_serve(const ServeBenchOptions& options) {
  const InterruptGuard guard;
  std::vector<std::vector<std::string>> rows{{"req/s sent", "at most", "done", "failed", "req/s", "tokens/s",
                                              "TTFT mean ms", "p99", "TPOT mean ms", "p99", "ITL p99 ms",
                                              "E2EL mean ms", "good req/s"}};
  ordered_json cases = ordered_json::array();
  std::string failure;
  std::size_t num_requests = 0;
  const auto run = [&](double rate, int concurrency) {
    ServeLoadOptions load = options.load;
    load.rate = rate;
    const LoadPlan plan = plan_load(load);
    num_requests = plan.requests.size();
    const ServeRun result = run_load(options.target, plan.requests, concurrency, load.seed, guard);
    ordered_json figures = {{"rate", std::isfinite(rate) ? ordered_json(rate) : ordered_json(nullptr)},
                            {"arrivals", plan.traced_arrivals  ? kTracedArrivals
                                         : std::isfinite(rate) ? "gamma"
                                                               : "at once"},
                            {"concurrency", concurrency > 0 ? ordered_json(concurrency) : ordered_json(nullptr)}};
    figures.update(serve_figures(result.answers, result.duration_s, options.goodput));
    rows.push_back(row_of(figures));
    for (const ServedAnswer& answer : result.answers)
      if (!answer.error.empty() && failure.empty()) failure = "some requests failed; the first: " + answer.error;
    cases.push_back(std::move(figures));
  };
  const std::vector<double> rates = options.rates.empty() ? std::vector{options.load.rate} : options.rates;
  const std::vector<double> concurrencies = options.concurrencies.empty() ? std::vector{0.0} : options.concurrencies;
  for (const double rate : rates)
    for (const double concurrency : concurrencies) run(rate, static_cast<int>(concurrency));
  ordered_json fields = {{"url", options.target.url},
                         {"endpoint", options.target.endpoint == ServeEndpoint::chat ? "chat" : "completions"},
                         {"ignore_eos", options.target.ignore_eos},
                         {"num_requests", num_requests},
                         {"burstiness", options.load.burstiness},
                         {"prompt_tokens", options.load.prompt_tokens},
                         {"output_tokens", options.load.output_tokens},
                         {"range", options.load.range},
                         {"trace", options.load.trace ? ordered_json(*options.load.trace) : ordered_json(nullptr)},
                         {"seed", options.load.seed},
                         {"cases", std::move(cases)}};
  const Goodput& good = options.goodput;
  if (!good.ttft_s && !good.tpot_s && !good.e2el_s)
    for (auto& row : rows) row.pop_back();
  return {.fields = std::move(fields), .table = table_text(rows), .failure = std::move(failure)};
}

void run_serve(ServeBenchOptions options) {
  while (options.target.url.ends_with('/')) options.target.url.pop_back();
  if (options.target.url.ends_with("/v1")) options.target.url.resize(options.target.url.size() - 3);
  if (options.target.first_token > options.target.last_token)
    throw InputError("--first-token is larger than --last-token");
  if (options.key_file) options.target.api_key = key_in(*options.key_file);
  if (options.target.model.empty()) options.target.model = first_model(options.target);
  BenchOptions head;
  head.model.model = options.target.model;
  RecordFile file("serve", head, options.json_file);
  if (!options.svg_file.empty()) PendingFile{options.svg_file};  // an unwritable file is reported now
  const BenchResult result = bench_serve(options);
  if (!options.svg_file.empty())
    write_file(options.svg_file,
               svg_of(latency_chart(result.fields.at("cases"),
                                    fmt::format("{}: latency over throughput", options.target.model))));
  file.write(result);
}

}  // namespace

void add_serve_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<ServeBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("serve", "A server under load: TTFT, TPOT, ITL, E2EL, throughput; any OpenAI endpoint");
  command->add_option("--url", options->target.url, "The server; default http://127.0.0.1:8000")->type_name("URL");
  command->add_option("--model", options->target.model, "A model that it serves; default: the first one that it lists")
      ->type_name("NAME");
  command->add_option("--api-key-file", options->key_file, "A file with the API key")->type_name("FILE");
  add_number_option<int>(*command, "--num-prompts", options->load.num_requests,
                         "Requests of each case; default: as many as the trace has lines, or 100 without one",
                         {.min = 1, .max = 1 << 20});
  command
      ->add_option_function<std::string>(
          "--rate", [options](const std::string& text) { options->rates = parse_numbers("--rate", text, 1e-3); },
          "Requests a second, a case each, comma-separated; inf (default): all at once, or when the trace says")
      ->type_name("NUMBERS");
  command
      ->add_option_function<std::string>(
          "--concurrency",
          [options](const std::string& text) { options->concurrencies = parse_numbers("--concurrency", text, 1); },
          "Requests that run at a time, at most, a case each, comma-separated; default: no limit")
      ->type_name("NUMBERS");
  add_number_option<double>(*command, "--burstiness", options->load.burstiness,
                            "Shape of the gamma distribution of gaps between arrivals; default 1, a Poisson process; "
                            "less is burstier",
                            {.min = 0.01, .max = 1000});
  add_number_option<int>(*command, "--input-len", options->load.prompt_tokens, "Tokens of a prompt; default 256",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--output-len", options->load.output_tokens, "Tokens of an answer; default 64",
                         {.min = 1, .max = 1 << 20});
  add_number_option<double>(*command, "--range", options->load.range,
                            "Lengths are uniform from 1 - RANGE to 1 + RANGE times those; default 0",
                            {.min = 0, .max = 0.99});
  command
      ->add_option("--trace", options->load.trace,
                   "Lengths from a file: a JSON object a line, {\"prompt_tokens\", \"output_tokens\"} and, for its own "
                   "arrivals, \"arrival_s\"; for more --num-prompts it is repeated, later by its length each time")
      ->type_name("FILE");
  add_number_option<std::uint64_t>(*command, "--seed", options->load.seed,
                                   "Of arrivals, lengths and prompts; default 1");
  add_number_option<int>(*command, "--first-token", options->target.first_token,
                         "Prompts are of random ids from this one; default 100", {.min = 0});
  add_number_option<int>(*command, "--last-token", options->target.last_token, "To this one; default 1000", {.min = 0});
  add_number_option<double>(*command, "--timeout", options->target.timeout_s, "Seconds of one request; default 600",
                            {.min = 1, .max = 86'400});
  command
      ->add_option_function<std::string>(
          "--goodput", [options](const std::string& text) { options->goodput = parse_goodput(text); },
          "Also the rate of requests that keep these limits in milliseconds: ttft:500,tpot:50,e2el:2000")
      ->type_name("LIMITS");
  command
      ->add_option_function<std::string>(
          "--endpoint",
          [options](const std::string& name) {
            options->target.endpoint = name == "chat" ? ServeEndpoint::chat : ServeEndpoint::completions;
          },
          "completions (default): prompts of random token ids; chat: messages of random words, about one token each")
      ->check(CLI::IsMember({"completions", "chat"}));
  command->add_flag("!--no-ignore-eos", options->target.ignore_eos,
                    "Send no ignore_eos, which OpenAI's own API rejects: answers may end sooner");
  command->add_option("--svg", options->svg_file, "Also draw latency over throughput, a point for each case")
      ->type_name("FILE");
  add_json_option(*command, options->json_file);
  command->callback([options] { run_serve(*options); });
}

}  // namespace heddle
