// heddle plan: what a way to divide work would cost on machines that need not be here.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/commands.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/sequence_rates.h"
#include "parallel/sequence/plan.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct PlanAttentionOptions {
  SequenceRequest request;
  std::vector<int> gpus{1};
  SequenceRateOptions rates;
  bool two_halves = false;
  bool json = false;
};

// Volumes are whole numbers wherever the sizes divide.
ordered_json element_json(double elements) {
  if (elements == std::floor(elements)) return static_cast<std::int64_t>(elements);
  return elements;
}

ordered_json json_of(const SequenceForecast& forecast) {
  if (!forecast.reason.empty()) return {{"fits", false}, {"reason", forecast.reason}};
  ordered_json object{{"fits", true},
                      {"ulysses", forecast.mesh.groups()},
                      {"ring", forecast.mesh.ring},
                      {"torus", forecast.mesh.torus},
                      {"inter_machine_elements", element_json(forecast.printed_elements)},
                      {"counted_elements", forecast.counted_elements},
                      {"global_barriers", forecast.barriers_of_all},
                      {"predicted_seconds", forecast.timeline.seconds},
                      {"compute_seconds", forecast.timeline.compute_seconds},
                      {"exposed_seconds", forecast.timeline.exposed_seconds}};
  if (!forecast.difference.empty()) object["counted_differs"] = forecast.difference;
  return object;
}

// What the request's numbers leave open, as sentences.
std::vector<std::string> notes_of(const SequenceRequest& request) {
  std::vector<std::string> notes;
  if (request.head_dim != 32 && request.head_dim != 64 && request.head_dim != 128)
    notes.push_back(
        fmt::format("heads of {} run on CPU ranks alone: GPUs have kernels for 32, 64 and 128", request.head_dim));
  if (request.placement.size() > kMaxPeers) notes.push_back(fmt::format("a run has at most {} ranks today", kMaxPeers));
  if (request.halves == 2)
    notes.emplace_back(
        request.placement.machines % 2 == 0
            ? "each half of the batch has half of the machines: rows are of one half"
            : "each half of the batch has half of each machine: times are of one half, elements of both");
  return notes;
}

ordered_json json_of(const SequenceRequest& request, const SequenceRateTable& rates, const SequencePlan& plan) {
  ordered_json object{{"machines", request.placement.machines},
                      {"gpus", request.placement.ranks_per_machine},
                      {"heads", request.num_heads},
                      {"head_dim", request.head_dim},
                      {"tokens", request.num_tokens},
                      {"batch", request.batch},
                      {"halves", request.halves},
                      {"rates", rates.json()},
                      {"strategies", ordered_json::object()},
                      {"pick", name_of(plan.pick)},
                      {"picked", json_of(plan.picked())},
                      {"notes", notes_of(request)}};
  for (const SequenceForecast& forecast : plan.strategies) {
    ordered_json& of = object["strategies"][std::string(name_of(forecast.strategy))] = json_of(forecast);
    const SequenceForecast& fastest = plan.fastest_of(forecast.strategy);
    if (fastest.mesh != forecast.mesh) of["fastest_degree"] = json_of(fastest);
  }
  return object;
}

std::string text_of(const SequenceRequest& request, const SequenceRateTable& rates, const SequencePlan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"strategy", "U x R", "printed", "counted", "predicted ms", "exposed ms", ""}};
  std::map<std::string, std::string> differences;  // of counts and equations, and the rows that have each
  const auto add = [&](const SequenceForecast& of, const std::string& remark) {
    const std::string name(name_of(of.strategy));
    rows.push_back({name, fmt::format("{} x {}", of.mesh.groups(), of.mesh.ring),
                    fmt::format("{:.0f}", of.printed_elements), fmt::format("{}", of.counted_elements),
                    fmt::format("{:.3f}", of.timeline.seconds * 1e3),
                    fmt::format("{:.3f}", of.timeline.exposed_seconds * 1e3), remark});
    if (of.difference.empty()) return;
    std::string& names = differences[of.difference];
    names += fmt::format("{}{} {} x {}", names.empty() ? "" : ", ", name, of.mesh.groups(), of.mesh.ring);
  };
  for (const SequenceForecast& of : plan.strategies) {
    const SequenceForecast& fastest = plan.fastest_of(of.strategy);
    const std::string pick = of.strategy == plan.pick ? "pick" : "";
    if (!of.reason.empty()) {
      rows.push_back({std::string(name_of(of.strategy)), "-", "-", "-", "-", "-", of.reason});
    } else if (fastest.mesh == of.mesh) {
      add(of, pick);
    } else {
      add(of, "by the gcd rule");
      add(fastest, pick.empty() ? "fastest degree" : "fastest degree, pick");
    }
  }
  std::string text = table_text(rows) +
                     "printed: elements into a machine by the paper's equations; counted: by our schedules\n" +
                     fmt::format("times are predicted; rates: {}\n", rates.source());
  for (const auto& [difference, names] : differences) text += fmt::format("counted {}: {}\n", difference, names);
  for (const std::string& note : notes_of(request)) text += note + "\n";
  return text;
}

Placement placement_of(const PlanAttentionOptions& options) {
  const SequenceRequest& request = options.request;
  const std::vector<int>& gpus = options.gpus;
  if (gpus.size() == 1) return {.machines = request.placement.machines, .ranks_per_machine = gpus.front()};
  if (std::ssize(gpus) != request.placement.machines)
    throw_error<InputError>("plan attention: --gpus names {} machines, --machines {}", gpus.size(),
                            request.placement.machines);
  const std::int64_t ranks = std::accumulate(gpus.begin(), gpus.end(), std::int64_t{0});
  if (ranks > kMostPlannedRanks)
    throw_error<InputError>("plan attention: --gpus {} are {} ranks, at most {} are planned", fmt::join(gpus, ","),
                            ranks, kMostPlannedRanks);
  return equal_machines(gpus, request.num_heads, "plan attention");
}

void run_plan_attention(PlanAttentionOptions& options) {
  const SequenceRateTable rates(options.rates);
  options.request.rates = rates.of(options.request.head_dim);
  options.request.halves = options.two_halves ? 2 : 1;
  options.request.placement = placement_of(options);
  const SequencePlan plan = plan_sequence_attention(options.request);
  write_stdout(options.json ? json_of(options.request, rates, plan).dump(2) + "\n"
                            : text_of(options.request, rates, plan));
}

void add_plan_attention(CLI::App& plan) {
  const auto options = std::make_shared<PlanAttentionOptions>();
  SequenceRequest& request = options->request;
  CLI::App* command = plan.add_subcommand(
      "attention",
      "Strategies of sequence parallelism for one attention layer: traffic between machines, time, a pick");
  add_number_option<int>(*command, "--machines", request.placement.machines, "Machines; default 1", {.min = 1});
  add_numbers_option(*command, "--gpus", options->gpus, "GPUs of a machine, or of each, comma-separated; default 1",
                     {.min = 1});
  add_number_option<int>(
      *command, "--ulysses", request.degree,
      "Ulysses degree of usp, tas and torus; default: the gcd rule's, and beside it the fastest of all", {.min = 1});
  add_number_option<int>(*command, "--heads", request.num_heads, "Attention heads", {.min = 1})->required();
  add_number_option<int>(*command, "--head-dim", request.head_dim, "Elements of a head", {.min = 1})->required();
  add_number_option<std::int64_t>(*command, "--tokens", request.num_tokens, "Tokens of the whole sequence", {.min = 1})
      ->required();
  add_number_option<int>(*command, "--batch", request.batch, "Sequences; default 1", {.min = 1});
  command->add_flag("--cfg", options->two_halves,
                    "CFG parallelism: each half of the batch on half of the machines, or of each machine's GPUs");
  add_sequence_rate_options(*command, options->rates);
  command->add_flag("--json", options->json, "One JSON object");
  command->footer(
      "The default rates are the StreamFusion paper's: 8 A100 in a machine, 400 Gbit/s out of it. Times are predicted "
      "by "
      "a timeline of the schedules that Heddle runs.");
  command->callback([options] { run_plan_attention(*options); });
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* plan = app.add_subcommand("plan", "What a way to divide work would cost on other machines");
  plan->require_subcommand(1);
  add_plan_attention(*plan);
}

}  // namespace heddle
