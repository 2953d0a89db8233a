#include "cli/bench/token_weave.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
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
};

constexpr TokenWeaveFigure kWeaveFigures[] = {{4, measure_norm_figure},
                                              {5, measure_norm_figure},
                                              {6, measure_norm_figure},
                                              {7, measure_norm_figure},
                                              {10, measure_norm_figure}};

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

// "cpu": `ranks` threads; "cuda": a rank on each GPU; otherwise a device for each rank.
std::vector<Device> weave_devices(const std::string& text, int ranks) {
  std::vector<Device> devices = devices_named(text);
  if (devices.empty())
    throw_error<InputError>("--device {}: expected cpu, cuda, or a GPU for each rank such as cuda:0,cuda:0",
                            printable_text(text));
  const bool cpu = devices.front().kind == DeviceKind::cpu;
  if (devices.size() == 1) {
    const int gpus = text == "cuda" ? static_cast<int>(discover_gpus().gpus.size()) : 1;
    if (!cpu && gpus == 0) throw_error<InputError>("--device {}: there is no GPU here (heddle doctor says why)", text);
    devices.assign(static_cast<std::size_t>(cpu ? ranks : gpus), devices.front());
    for (std::size_t i = 0; !cpu && i < devices.size() && gpus > 1; ++i) devices[i].index = static_cast<int>(i);
  }
  if (!kHaveCuda && !cpu) throw_error<InputError>("--device {}: this build has no CUDA", printable_text(text));
  for (const Device device : devices)
    if (device.kind != devices.front().kind)
      throw_error<InputError>("--device {}: ranks are all on the CPU, or all on GPUs", printable_text(text));
  return devices;
}

void run_token_weave(const TokenWeaveOptions& options) {
  require_no_run("bench token-weave");
  ordered_json record = bench_record("token-weave", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty() && *options.json_file != "-";
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  if (!options.svg_file.empty()) PendingFile{options.svg_file};
  const auto* const figure = std::ranges::find(kWeaveFigures, options.figure, &TokenWeaveFigure::number);
  const TokenWeaveResult result = figure->measure(options);
  record["figure"] = options.figure;
  record["ranks"] = options.devices.size();
  ordered_json devices = ordered_json::array();
  for (const Device device : options.devices) devices.push_back(name_of(device));
  record["devices"] = std::move(devices);
  record["not_reproducible_here"] = "rows by multimem (NVLink multicast is off), TileLink and NanoFlow";
  record["rows"] = result.rows;
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  if (!options.svg_file.empty()) write_file(options.svg_file, svg_of(result.chart));
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
    std::string device = "cpu";
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
          "4 all-reduce and norm three ways, 5 all-reduce against reduce-scatter and all-gather, 6 bandwidth of the "
          "reduce-scatter, 7 SMs of the all-reduce, 10 SMs of the fused operator")
      ->type_name("N")
      ->required();
  command->add_option("--device", given->device,
                      "cpu, cuda (a rank on each GPU), or a GPU for each rank, such as cuda:0,cuda:0; default cpu");
  add_number_option<int>(*command, "--ranks", given->ranks, "Ranks on the CPU; default 4", {.min = 1, .max = 16});
  command
      ->add_option_function<std::string>(
          "--tokens", [&options](const std::string& text) { options.tokens = numbers_of("--tokens", text, 1 << 17); },
          "Rows, comma-separated; default 1 to 16384 on GPUs, to 1024 on the CPU")
      ->type_name("NUMBERS");
  command
      ->add_option_function<std::string>(
          "--sms",
          [&options](const std::string& text) {
            options.sms = numbers_of("--sms", text, AllReduceNormMemory::kMostBlocks);
          },
          "SMs of figures 7 and 10, comma-separated; default 2 to 132")
      ->type_name("NUMBERS");
  add_number_option<int>(*command, "--hidden", options.hidden, "Elements of a row; default 8192",
                         {.min = 8, .max = 1 << 16});
  command
      ->add_option_function<std::string>(
          "--dtype", [&options](const std::string& name) { options.dtype = dtype_named(name); },
          "Of what is summed; default float32 on the CPU, bfloat16 on GPUs")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  add_number_option<int>(*command, "--repeats", options.repeats, "Samples; default 20", {.min = 1, .max = 10000});
  command->add_option("--svg", options.svg_file, "Also draw the figure into this file")->type_name("FILE");
  add_json_option(*command, options.json_file);
  command->callback([given] {
    given->options.devices = weave_devices(given->device, given->ranks);
    run_token_weave(given->options);
  });
}

}  // namespace heddle
