#include "cli/bench/token_weave.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/team.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/launched.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "engine/rank_world.h"
#include "fabric/nvlink/nvlink_ranks.h"
#include "fabric/run_ranks.h"
#include "fused/all_reduce_norm/norm_memory.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct TokenWeaveFigure {
  int number;
  TokenWeaveResult (*measure)(const TokenWeaveOptions&);
  bool of_model;  // otherwise of operators
};

constexpr TokenWeaveFigure kWeaveFigures[] = {
    {1, measure_step_figure, true},   {3, measure_norm_share_figure, true}, {4, measure_norm_figure, false},
    {5, measure_norm_figure, false},  {6, measure_norm_figure, false},      {7, measure_norm_figure, false},
    {9, measure_step_figure, true},   {10, measure_norm_figure, false},     {11, measure_step_figure, true},
    {12, measure_trace_figure, true}, {13, measure_trace_figure, true},     {14, measure_step_figure, true}};

std::string weave_figure_numbers() {
  std::string text;
  for (const TokenWeaveFigure& figure : kWeaveFigures)
    text += (text.empty() ? "" : ", ") + std::to_string(figure.number);
  return text;
}

std::vector<int> numbers_of(const std::string& option, const std::string& text, int most) {
  std::vector<int> numbers;
  for (const char *next = text.data(), *const last = next + text.size(); next <= last;) {
    int number = 0;
    const auto [end, error] = std::from_chars(next, last, number);
    if (error != std::errc() || number < 1 || number > most || (end != last && *end != ','))
      throw CLI::ValidationError(option, fmt::format("is \"{}\", expected numbers from 1 to {}, separated by commas",
                                                     printable_text(text), most));
    numbers.push_back(number);
    next = end + 1;
  }
  return numbers;
}

// "cpu": `ranks` threads; "cuda": a rank on each GPU; otherwise a device for each rank. `fewest` ranks on GPUs.
std::vector<Device> weave_devices(const std::string& text, int ranks, int fewest) {
  std::vector<Device> devices = devices_named(text);
  if (devices.empty())
    throw_error<InputError>("--device {}: expected cpu, cuda, or a GPU for each rank such as cuda:0,cuda:0",
                            printable_text(text));
  const bool cpu = devices.front().kind == DeviceKind::cpu;
  if (devices.size() == 1) {
    const int gpus = text == "cuda" ? static_cast<int>(discover_gpus().gpus.size()) : 1;
    if (!cpu && gpus == 0) throw_error<InputError>("--device {}: there is no GPU here (heddle doctor says why)", text);
    if (!cpu && gpus < fewest)
      throw_error<InputError>(
          "--device {}: one GPU, and a sum needs two ranks or more; name it for each, like cuda:0,cuda:0",
          printable_text(text));
    devices.assign(static_cast<std::size_t>(cpu ? ranks : gpus), devices.front());
    for (std::size_t i = 0; !cpu && i < devices.size() && gpus > 1; ++i) devices[i].index = static_cast<int>(i);
  }
  if (!kHaveCuda && !cpu) throw_error<InputError>("--device {}: this build has no CUDA", printable_text(text));
  for (const Device device : devices)
    if (device.kind != devices.front().kind)
      throw_error<InputError>("--device {}: ranks are all on the CPU, or all on GPUs", printable_text(text));
  return devices;
}

// What a figure would not use is not dropped without a word.
void require_options_of(const CLI::App& command, const TokenWeaveFigure& figure, bool on_gpus) {
  std::vector<std::string> other;
  const auto add = [&](std::initializer_list<const char*> names) {
    other.insert(other.end(), names.begin(), names.end());
  };
  const bool of_traces = figure.measure == &measure_trace_figure;
  const bool sweeps = figure.number == 7 || figure.number == 10;
  if (!figure.of_model) add({"--model", "--tp", "--compute", "--threads", "--transfer-sms"});
  if (!of_traces) add({"--split-tokens", "--lengths", "--trace", "--step-tokens", "--num-prompts"});
  if (of_traces) add({"--tokens"});
  if (figure.of_model) add({"--ranks", "--hidden"});
  if (!sweeps) add({"--sms"});
  if (figure.number != 4) add({"--regime"});
  for (const std::string& name : other)
    if (command.get_option(name)->count() > 0)
      throw_error<InputError>("bench token-weave: figure {} does not take {}", figure.number, name);
  if (!figure.of_model && on_gpus && command.get_option("--ranks")->count() > 0)
    throw_error<InputError>("bench token-weave: --ranks is of the CPU; on GPUs --device names one for each rank");
  if (!figure.of_model && !on_gpus && command.get_option("--sms")->count() > 0)
    throw_error<InputError>("bench token-weave: --sms is of GPUs; a rank of the CPU has one thread for the operator");
}

void run_token_weave(const TokenWeaveOptions& options) {
  require_no_run("bench token-weave");
  const auto* const figure = std::ranges::find(kWeaveFigures, options.figure, &TokenWeaveFigure::number);
  BenchOptions head;
  if (figure->of_model) head.model = options.model;
  ordered_json record = bench_record("token-weave", head);
  if (!figure->of_model)
    for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty() && *options.json_file != "-";
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  if (!options.svg_file.empty()) PendingFile{options.svg_file};
  const TokenWeaveResult result = figure->measure(options);
  record["figure"] = options.figure;
  record["ranks"] = figure->of_model ? static_cast<std::size_t>(options.model.ranks) : options.devices.size();
  if (!figure->of_model) {
    ordered_json devices = ordered_json::array();
    for (const Device device : options.devices) devices.push_back(name_of(device));
    record["devices"] = std::move(devices);
  }
  record["not_reproducible_here"] = "rows by multimem (NVLink multicast is off), TileLink and NanoFlow";
  record["rows"] = result.rows;
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  if (!options.svg_file.empty()) write_file(options.svg_file, result.svg);
  write_stdout(options.json_file && !to_file ? text : table_text(result.cells));
}

}  // namespace

void run_weave_ranks(const TokenWeaveOptions& options, std::size_t heap_bytes,
                     FunctionRef<void(Fabric&, Stream&)> rank_main) {
  const auto ranks = static_cast<int>(options.devices.size());
  const FabricOptions fabric_options{.heap_bytes = heap_bytes, .deadline = std::chrono::seconds(60)};
  if (!options.on_gpus()) return run_ranks("shm", ranks, fabric_options, rank_main);
  if constexpr (kHaveCuda) {
    prepare_shared_gpus(options.devices);
    std::vector<int> indices;
    for (const Device device : options.devices) indices.push_back(device.index);
    NvlinkThreads world(ranks, {.fabric = fabric_options, .memory = PeerMemoryKind::cuda_ipc}, indices);
    run_team(ranks, [&](TeamMember& member) {
      const auto fabric = world.rank(member.rank());
      Stream stream(fabric->device());
      rank_main(*fabric, stream);
    });
  }
}

void add_token_weave_benchmark(CLI::App& bench) {
  struct Given {
    TokenWeaveOptions options;
    int ranks = 4;
  };
  const auto given = std::make_shared<Given>();
  TokenWeaveOptions& options = given->options;
  CLI::App* command = bench.add_subcommand("token-weave", "Figures of TokenWeave, measured on ranks of this machine");
  command
      ->add_option_function<std::string>(
          "--figure",
          [&options](const std::string& text) {
            for (const TokenWeaveFigure& figure : kWeaveFigures)
              if (text == std::to_string(figure.number)) options.figure = figure.number;
            if (options.figure == 0)
              throw CLI::ValidationError("--figure", fmt::format("is \"{}\", expected one of {}", printable_text(text),
                                                                 weave_figure_numbers()));
          },
          "4 all-reduce and norm three ways, on one rank the norm alone and within the fused operator, 5 all-reduce "
          "against reduce-scatter and all-gather, 6 bandwidth of the "
          "reduce-scatter, 7 SMs of the all-reduce, 10 SMs of the fused operator; of a model: 1 what "
          "communication adds, 3 the norms' share of a step, 9 splits, 11 latency, 14 one layer (synth:NAME,layers=1), "
          "12 throughput of traces, 13 by the tokens of a step")
      ->type_name("N")
      ->required();
  // Figures of operators have no model.
  add_model_options(*command, options.model);
  command->get_option("--model")->required(false);
  add_ranks_option(*command, options.model.ranks);
  add_number_option<int>(*command, "--split-tokens", options.model.split_tokens,
                         "Of traces: tokens of the smallest step in two parts; default as of generate",
                         {.min = 2, .max = 1 << 20});
  add_transfer_sms_option(*command, options.model);
  add_number_option<int>(*command, "--ranks", given->ranks, "Of operators: ranks on the CPU; default 4",
                         {.min = 1, .max = 16});
  command
      ->add_option_function<std::string>(
          "--tokens", [&options](const std::string& text) { options.tokens = numbers_of("--tokens", text, 1 << 17); },
          "Rows of a call or tokens of a step, comma-separated; default 1 to 16384 on GPUs, to 1024 on the CPU; of a "
          "model 1024 to 8192")
      ->type_name("NUMBERS");
  command
      ->add_option_function<std::string>(
          "--sms",
          [&options](const std::string& text) {
            options.sms = numbers_of("--sms", text, AllReduceNormMemory::kMostBlocks);
          },
          "SMs of figures 7 and 10, comma-separated; default 2 to 132")
      ->type_name("NUMBERS");
  command
      ->add_option_function<std::vector<std::string>>(
          "--regime",
          [&options](const std::vector<std::string>& names) {
            for (const std::string& name : names) {
              const auto regime = all_reduce_norm_regime_named(name);
              if (!regime)
                throw CLI::ValidationError("--regime",
                                           fmt::format("is \"{}\", expected one_shot, two_phase or pipelined, "
                                                       "separated by commas",
                                                       printable_text(name)));
              options.regimes.push_back(*regime);
            }
          },
          "Of figure 4: the fused operator also in these regimes, at the sizes where they are possible: one_shot, "
          "two_phase, pipelined, comma-separated")
      ->delimiter(',')
      ->type_name("NAMES");
  add_number_option<int>(*command, "--hidden", options.hidden, "Elements of an operator's row; default 8192",
                         {.min = 8, .max = 1 << 16});
  command
      ->add_option("--lengths", options.lengths,
                   "Of traces: tokens of prompt and answer, comma-separated; default 1024:128,2048:128,4096:128 on "
                   "GPUs, 64:16,256:16 on the CPU")
      ->delimiter(',')
      ->type_name("PROMPT:ANSWER");
  command
      ->add_option("--trace", options.trace_file,
                   "Of traces: also lengths from a file: a JSON object a line, {\"prompt_tokens\", \"output_tokens\"}")
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--step-tokens",
          [&options](const std::string& text) { options.step_tokens = numbers_of("--step-tokens", text, 1 << 17); },
          "Of traces: tokens of a step at most, comma-separated; default 2048 on GPUs and 128 on the CPU; figure 13 "
          "1024 "
          "to 8192, and 64 to 512")
      ->type_name("NUMBERS");
  add_number_option<int>(*command, "--num-prompts", options.num_prompts, "Of traces: requests; default 16",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--repeats", options.repeats,
                         "Samples; default 20 of operators, 5 of steps, 3 of traces", {.min = 1, .max = 10000});
  command->add_option("--svg", options.svg_file, "Also draw the figure into this file")->type_name("FILE");
  add_json_option(*command, options.json_file);
  command->footer(
      "Figures of operators run on the CPU unless --device names a GPU for each rank. Rows by multimem (NVLink "
      "multicast\n"
      "is off), TileLink and NanoFlow cannot be reproduced here.");
  command->callback([given, command] {
    TokenWeaveOptions& all = given->options;
    const TokenWeaveFigure& figure = *std::ranges::find(kWeaveFigures, all.figure, &TokenWeaveFigure::number);
    const bool of_model = figure.of_model;
    if (of_model && all.model.model.empty())
      throw_error<InputError>("bench token-weave: figure {} is of a model; give --model", all.figure);
    if (of_model && all.model.ranks < 2)
      throw_error<InputError>("bench token-weave: figure {} is of several ranks; give --tp N, 2 or more", all.figure);
    if (!of_model) {
      const int fewest_ranks = all.figure == 4 ? 1 : 2;  // one has norms without a sum
      all.devices = weave_devices(all.model.devices.empty() ? "cpu" : all.model.devices, given->ranks, fewest_ranks);
      all.dtype = all.model.dtype;
    }
    require_options_of(*command, figure, !of_model && all.on_gpus());
    run_token_weave(all);
  });
}

}  // namespace heddle
