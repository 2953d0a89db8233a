#include "cli/bench/sequence_attention.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/exact_attention.h"
#include "cli/bench/quantile.h"
#include "cli/bench/record.h"
#include "cli/bench/sequence_figures.h"
#include "cli/bench/sequence_pieces.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "machine/device_choice.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct SequenceBenchOptions {
  int figure = 0;
  RankLayers layers;
  std::optional<int> machines, gpus, heads;
  SequenceRateOptions rates;
  Device device;         // of figure 12
  std::string baseline;  // of figure 12
  std::vector<std::string> strategies;
  bool two_halves = false;
  std::optional<std::string> json_file;

  bool has_ranks() const { return machines || gpus; }
};

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const SequenceStrategy strategy : kSequenceStrategies) names.emplace_back(name_of(strategy));
  return names;
}

// What is printed, and what a record holds.
struct FigureOutput {
  std::vector<std::vector<std::string>> cells;
  ordered_json fields;
  std::string wrong;  // the first layer or case whose values are wrong; empty: none is
};

std::string text_of(const LayerMeasurement& measured, const Placement& placement) {
  const bool is_emulated = placement.machines > 1 && measured.hosts == RankHosts::one_host;
  return name_of(measured.hosts) + (is_emulated ? ", emulated machines" : "") +
         (measured.emulates_links ? " and links" : "");
}

ordered_json json_of(const FigureRow& row) {
  ordered_json object{{"layer", row.layer},
                      {"machines", row.placement.machines},
                      {"gpus", row.placement.ranks_per_machine},
                      {"halves", row.halves},
                      {"strategy", name_of(row.strategy)},
                      {"ulysses", row.mesh.groups()},
                      {"ring", row.mesh.ring},
                      {"torus", row.mesh.torus},
                      {"source", row.measured ? "measured" : "predicted"},
                      {"seconds", row.seconds},
                      {"counted_elements", row.counted_elements}};
  if (row.exposed_seconds) object["exposed_seconds"] = *row.exposed_seconds;
  if (!row.measured) return object;
  object["measured_elements"] = row.measured->moved_elements;
  object["spread"] = spread(row.measured->samples);
  if (!row.measured->alone.empty()) object["compute_seconds"] = spread(row.measured->alone);
  if (const std::optional<double> error = row.measured->error)
    object["relative_error"] = std::isfinite(*error) ? ordered_json(*error) : ordered_json("not finite");
  object["ranks_on"] = name_of(row.measured->hosts);
  object["fabric"] = row.measured->fabric;
  object["emulated_machines"] = row.placement.machines > 1 && row.measured->hosts == RankHosts::one_host;
  object["emulated_links"] = row.measured->emulates_links;
  object["launch"] = row.measured->from_graph ? "graph" : "operations";
  return object;
}

std::vector<std::vector<std::string>> table_of(const std::vector<FigureRow>& rows, bool timed_waits) {
  std::vector<std::vector<std::string>> cells{{"layer", "machines", "strategy", "U x R", "source", "ranks on", "ms",
                                               "p10", "p90", "compute ms", "exposed ms", "to usp", "counted",
                                               "measured elements", "error"}};
  std::map<bool, double> usp;  // of predicted and of measured rows
  std::string layer;
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  for (const FigureRow& row : rows) {
    const bool is_measured = row.measured.has_value();
    if (layer != row.layer) usp.clear();
    layer = row.layer;
    if (row.strategy == SequenceStrategy::usp) usp[is_measured] = row.seconds;
    const ordered_json of = is_measured ? spread(row.measured->samples) : ordered_json();
    cells.push_back({row.layer, fmt::format("{} x {}", row.placement.machines, row.placement.ranks_per_machine),
                     std::string(name_of(row.strategy)), fmt::format("{} x {}", row.mesh.groups(), row.mesh.ring),
                     !is_measured  ? "predicted"
                     : timed_waits ? "measured, timed waits"
                                   : "measured",
                     is_measured ? text_of(*row.measured, row.placement) : "-", ms(row.seconds),
                     is_measured ? ms(of["p10"]) : "-", is_measured ? ms(of["p90"]) : "-",
                     is_measured && !row.measured->alone.empty() ? ms(median(row.measured->alone)) : "-",
                     row.exposed_seconds ? ms(*row.exposed_seconds) : "-",
                     usp.contains(is_measured) ? fmt::format("{:.2f}x", usp[is_measured] / row.seconds) : "-",
                     fmt::format("{}", row.counted_elements),
                     is_measured ? fmt::format("{}", row.measured->moved_elements) : "-",
                     is_measured && row.measured->error
                         ? fmt::format("{:.1e}{}", *row.measured->error, has_right_values(row) ? "" : " WRONG")
                         : "-"});
  }
  return cells;
}

FigureOutput output_of_pieces(const SequenceBenchOptions& options) {
  const std::vector<int>& head_dims = options.layers.head_dims;
  if (head_dims.size() > 1)
    throw_error<InputError>("bench sequence-attention: figure 12 takes one --head-dim, or its own without");
  PieceBench pieces = bench_pieces({.device = options.device,
                                    .tokens = options.layers.tokens,
                                    .head_dim = head_dims.empty() ? std::nullopt : std::optional(head_dims.front()),
                                    .heads = options.heads,
                                    .repeats = options.layers.repeats,
                                    .compare = !options.baseline.empty()});
  return {std::move(pieces.cells), std::move(pieces.fields), std::move(pieces.wrong)};
}

RankLayers rank_layers(const SequenceBenchOptions& options) {
  RankLayers layers = options.layers;
  layers.placement = {options.machines.value_or(1), options.gpus.value_or(1)};
  layers.heads = options.heads.value_or(layers.heads);
  layers.halves = options.two_halves ? 2 : 1;
  for (const std::string& name : options.strategies) layers.strategies.push_back(*sequence_strategy_named(name));
  return layers;
}

// Nothing in a process that has not rank 0.
std::optional<FigureOutput> output_of_layers(const SequenceBenchOptions& options) {
  const SequenceRateTable rates(options.rates);
  std::optional<std::vector<FigureRow>> found;
  FigureOutput result;
  if (!options.has_ranks()) {
    found = predicted_figure(options.figure, rates);
  } else if (const RankLayers layers = rank_layers(options); layers.is_predicted) {
    found = predicted_figure(options.figure, layers, rates);
  } else {
    found = measured_figure(options.figure, layers, rates);
    if (!found) return {};
    result.fields["measured"] = {{"fabric", layers.fabric},
                                 {"repeats", layers.repeats},
                                 {"computation", layers.timed_waits ? "timed waits" : "computed"}};
  }
  const std::vector<FigureRow>& rows = *found;
  result.cells = table_of(rows, options.layers.timed_waits);
  if (const auto wrong = std::ranges::find_if_not(rows, has_right_values); wrong != rows.end())
    result.wrong = fmt::format("{}, {}", wrong->layer, name_of(wrong->strategy));
  result.fields["rates"] = rates.json();
  result.fields["rows"] = ordered_json::array();
  for (const FigureRow& row : rows) result.fields["rows"].push_back(json_of(row));
  return result;
}

void run_sequence_bench(const SequenceBenchOptions& options) {
  ordered_json record = bench_record("sequence-attention", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  record["figure"] = options.figure;
  record["of"] = "attention layers; the paper times whole sampling steps";
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  const std::optional<FigureOutput> output =
      options.figure == 12 ? std::optional(output_of_pieces(options)) : output_of_layers(options);
  if (!output) return;
  record.update(output->fields);
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  write_stdout(options.json_file && !to_file ? text : table_text(output->cells));
  if (!output->wrong.empty())
    throw_error<Failure>("{}: these values are wrong, nothing of their time counts", output->wrong);
}

// An option that a figure does not take would be ignored, so it is an error.
void require_taken_options(const CLI::App& command, const SequenceBenchOptions& options) {
  using Names = std::set<std::string>;
  static const Names kOfPieces{"--device", "--compare", "--tokens", "--heads", "--head-dim", "--repeats"};
  static const Names kOfRanks{"--tokens", "--heads", "--head-dim", "--batch", "--ulysses", "--cfg", "--strategy"};
  static const Names kOfRuns{"--fabric", "--repeats",  "--timed-waits",  "--emulate-links",
                             "--eager",  "--deadline", "--compute-alone"};
  Names taken{"--figure", "--json", "--help"};
  if (options.figure == 12) {
    taken.insert(kOfPieces.begin(), kOfPieces.end());
  } else {
    taken.insert({"--machines", "--gpus"});
    taken.insert(std::begin(kSequenceRateOptions), std::end(kSequenceRateOptions));
    if (options.has_ranks()) {
      taken.insert(kOfRanks.begin(), kOfRanks.end());
      taken.insert("--predict");
      if (!options.layers.is_predicted) taken.insert(kOfRuns.begin(), kOfRuns.end());
    }
  }
  for (const CLI::Option* given : command.get_options()) {
    const std::string name = given->get_name();
    if (given->count() == 0 || taken.contains(name)) continue;
    if (options.layers.is_predicted && kOfRuns.contains(name))
      throw_error<InputError>("bench sequence-attention: {} is of measured layers, and --predict measures none", name);
    if (options.figure != 12 && (kOfRanks.contains(name) || kOfRuns.contains(name)))
      throw_error<InputError>(
          "bench sequence-attention: {} is of measured layers, and figure {} measures none without --machines and "
          "--gpus",
          name, options.figure);
    if (options.figure != 12 && name == "--predict")
      throw_error<InputError>(
          "bench sequence-attention: --predict is of layers on --machines and --gpus; the paper's are "
          "predicted without it");
    throw_error<InputError>("bench sequence-attention: figure {} does not take {}", options.figure, name);
  }
}

}  // namespace

void add_sequence_attention_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<SequenceBenchOptions>();
  RankLayers& layers = options->layers;
  CLI::App* command = bench.add_subcommand(
      "sequence-attention",
      "Figures of StreamFusion for attention layers: predicted for machines of 8 GPUs, or measured");
  command
      ->add_option_function<std::string>(
          "--figure",
          [options](const std::string& text) {
            for (const int figure : {7, 8, 9, 10, 12})
              if (text == std::to_string(figure)) options->figure = figure;
            if (options->figure == 0)
              throw CLI::ValidationError("--figure",
                                         fmt::format("is \"{}\", expected 7, 8, 9, 10 or 12", printable_text(text)));
          },
          "7 best degrees, 8 degrees, 9 head dimension, length and batch, 10 what each idea adds, 12 the kernel's "
          "pieces")
      ->type_name("N")
      ->required();
  command->add_option("--fabric", layers.fabric,
                      "Of measured ranks: shm, mpi, nvlink or nvlink-ipc (ranks that share a GPU); default shm");
  add_number_option<int>(*command, "--machines", options->machines, "Measure, on ranks that stand for as many machines",
                         {.min = 1, .max = kMaxPeers});
  add_number_option<int>(*command, "--gpus", options->gpus, "and as many ranks on each", {.min = 1, .max = kMaxPeers});
  command->add_flag("--predict", layers.is_predicted,
                    "Predict these layers on these machines and GPUs, and measure nothing");
  add_numbers_option(*command, "--tokens", layers.tokens,
                     "Tokens of measured layers, comma-separated; default 512, figure 9 256,512, figure 12 on a GPU "
                     "4096 to 167504",
                     {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--heads", options->heads, "Their heads; default 8, figure 12 on a GPU 24",
                         {.min = 1, .max = 1024});
  add_numbers_option(*command, "--head-dim", layers.head_dims,
                     "Elements of a head, comma-separated; default 64, figure 9 32,64,128, figure 12 on a GPU 64 and "
                     "128",
                     {.min = 1, .max = 256});
  add_numbers_option(*command, "--batch", layers.batches,
                     "Sequences of measured layers, comma-separated; default 1, figure 9 1,2, with --cfg twice as many",
                     {.min = 1, .max = 1024});
  command
      ->add_option(
          "--strategy", options->strategies,
          fmt::format("Measured strategies, comma-separated; default: all of {}", fmt::join(strategy_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(strategy_names()).description(""));
  add_numbers_option(*command, "--ulysses", layers.degrees,
                     "Ulysses degrees of measured usp, tas, torus and one_sided, comma-separated; default: the gcd "
                     "rule's, figures 7 and 8 all that divide ranks and heads",
                     {.min = 1, .max = kMaxPeers});
  command
      ->add_option_function<std::string>(
          "--device",
          [options](const std::string& name) {
            const std::vector<Device> devices = devices_named(name);
            if (devices.size() != 1)
              throw CLI::ValidationError("--device",
                                         fmt::format("is \"{}\", expected cpu, cuda or cuda:N", printable_text(name)));
            options->device = devices.front();
          },
          "Of figure 12; default cpu")
      ->type_name("DEVICE");
  command->add_option("--compare", options->baseline, "Figure 12 beside the fastest attention of PyTorch: torch")
      ->type_name("NAME");
  add_number_option<int>(*command, "--repeats", layers.repeats, "Samples; default 5", {.min = 1, .max = 10000});
  add_sequence_rate_options(*command, options->rates);
  command->add_flag(
      "--cfg", options->two_halves,
      "Measured with CFG parallelism: each half of the batch on half of the machines, or of each machine's "
      "ranks, beside the other");
  command->add_flag("--timed-waits", layers.timed_waits,
                    "Measured on CPU ranks: computation is replaced by waits as long as the rates say");
  command->add_flag("--emulate-links", layers.emulates_links,
                    "Measured on one host: transfers between machines take as long as by links of --machine-gbps and "
                    "--remote-us");
  command->add_flag(
      "--eager", layers.eager,
      "Measured on GPUs: each operation of a layer is launched by itself; default: a layer is a CUDA graph");
  command->add_flag(
      "--compute-alone", layers.compute_alone,
      "Measured, interleaved: each layer without its transfers, messages and barriers, too; exposed ms are "
      "the difference");
  add_number_option<int>(*command, "--deadline", layers.deadline_seconds,
                         "Measured: seconds that a rank waits for another; default 60", {.min = 1, .max = 100000});
  add_json_option(*command, options->json_file);
  command->callback([options, command] {
    if (options->machines.value_or(1) * options->gpus.value_or(1) > kMaxPeers)
      throw_error<InputError>("bench sequence-attention: {} x {} are more than {} ranks", options->machines.value_or(1),
                              options->gpus.value_or(1), kMaxPeers);
    require_taken_options(*command, *options);
    if (!options->baseline.empty() && options->baseline != "torch")
      throw_error<InputError>("bench sequence-attention: --compare {}, expected torch", options->baseline);
    run_sequence_bench(*options);
  });
}

}  // namespace heddle
