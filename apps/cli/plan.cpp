// heddle plan: what a way to divide work would cost on machines that need not be here.
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench/record.h"
#include "cli/commands.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "parallel/sequence/plan.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct PlanAttentionOptions {
  SequenceRequest request;
  double tflops = 200, machine_gbps = 50, gpu_gbps = 250;
  bool json = false;
};

// Volumes are whole numbers wherever the sizes divide.
ordered_json element_json(double elements) {
  if (elements == std::floor(elements)) return static_cast<std::int64_t>(elements);
  return elements;
}

ordered_json json_of(const SequenceForecast& forecast) {
  if (!forecast.reason.empty()) return {{"fits", false}, {"reason", forecast.reason}};
  return {{"fits", true},
          {"ulysses", forecast.mesh.groups()},
          {"ring", forecast.mesh.ring},
          {"torus", forecast.mesh.torus},
          {"inter_machine_elements", element_json(forecast.printed_elements)},
          {"counted_elements", forecast.counted_elements},
          {"global_barriers", forecast.barriers_of_all},
          {"predicted_seconds", forecast.timeline.seconds},
          {"compute_seconds", forecast.timeline.compute_seconds},
          {"exposed_seconds", forecast.timeline.exposed_seconds}};
}

ordered_json json_of(const PlanAttentionOptions& options, const SequencePlan& plan) {
  const SequenceRequest& request = options.request;
  ordered_json object{{"machines", request.placement.machines},
                      {"gpus", request.placement.ranks_per_machine},
                      {"heads", request.num_heads},
                      {"head_dim", request.head_dim},
                      {"tokens", request.num_tokens},
                      {"batch", request.batch},
                      {"rates",
                       {{"attention_tflops", options.tflops},
                        {"machine_link_gbps", options.machine_gbps},
                        {"gpu_link_gbps", options.gpu_gbps}}},
                      {"strategies", ordered_json::object()},
                      {"pick", name_of(plan.pick)}};
  for (const SequenceForecast& forecast : plan.strategies)
    object["strategies"][std::string(name_of(forecast.strategy))] = json_of(forecast);
  return object;
}

std::string text_of(const SequencePlan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"strategy", "U x R", "printed", "counted", "predicted ms", "exposed ms", ""}};
  for (const SequenceForecast& of : plan.strategies) {
    const std::string name(name_of(of.strategy));
    if (!of.reason.empty()) {
      rows.push_back({name, "-", "-", "-", "-", "-", of.reason});
      continue;
    }
    rows.push_back({name, fmt::format("{} x {}", of.mesh.groups(), of.mesh.ring),
                    fmt::format("{:.0f}", of.printed_elements), fmt::format("{}", of.counted_elements),
                    fmt::format("{:.3f}", of.timeline.seconds * 1e3),
                    fmt::format("{:.3f}", of.timeline.exposed_seconds * 1e3), of.strategy == plan.pick ? "pick" : ""});
  }
  return table_text(rows) +
         "printed: elements into a machine by the paper's equations; counted: by our schedules; times are predicted\n";
}

void run_plan_attention(PlanAttentionOptions& options) {
  options.request.rates.attention_flops = options.tflops * 1e12;
  options.request.rates.machine_link_bytes = options.machine_gbps * 1e9;
  options.request.rates.gpu_link_bytes = options.gpu_gbps * 1e9;
  const SequencePlan plan = plan_sequence_attention(options.request);
  write_stdout(options.json ? json_of(options, plan).dump(2) + "\n" : text_of(plan));
}

void add_plan_attention(CLI::App& plan) {
  const auto options = std::make_shared<PlanAttentionOptions>();
  SequenceRequest& request = options->request;
  CLI::App* command = plan.add_subcommand(
      "attention",
      "Strategies of sequence parallelism for one attention layer: traffic between machines, time, a pick");
  add_number_option<int>(*command, "--machines", request.placement.machines, "Machines; default 1", {.min = 1});
  add_number_option<int>(*command, "--gpus", request.placement.ranks_per_machine, "GPUs of a machine; default 1",
                         {.min = 1});
  add_number_option<int>(
      *command, "--ulysses", request.degree,
      "Ulysses degree of usp, tas and torus; default: the greatest common divisor of ranks and heads", {.min = 1});
  add_number_option<int>(*command, "--heads", request.num_heads, "Attention heads", {.min = 1})->required();
  add_number_option<int>(*command, "--head-dim", request.head_dim, "Elements of a head", {.min = 1})->required();
  add_number_option<std::int64_t>(*command, "--tokens", request.num_tokens, "Tokens of the whole sequence", {.min = 1})
      ->required();
  add_number_option<int>(*command, "--batch", request.batch, "Sequences; default 1", {.min = 1});
  const NumberRange<double> rate{.min = 1e-6, .max = 1e9};
  add_number_option<double>(*command, "--tflops", options->tflops, "TFLOP/s of attention of a GPU; default 200", rate);
  add_number_option<double>(*command, "--machine-gbps", options->machine_gbps,
                            "GB/s out of a machine, and into it; default 50", rate);
  add_number_option<double>(*command, "--gpu-gbps", options->gpu_gbps,
                            "GB/s from GPU to GPU inside a machine; default 250", rate);
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
