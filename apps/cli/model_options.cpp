#include "cli/model_options.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>

#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/format_text.h"
#include "cli/launched.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/tuned_gathers.h"
#include "engine/memory_plan.h"
#include "engine/model_tokenizer.h"
#include "fabric/launch.h"
#include "machine/cpu.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/tuned_store.h"
#include "models/registry.h"
#include "parallel/shipped_decode.h"
#include "weights/damage.h"
#include "weights/shapes.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

// Bytes of the weights that are created in memory instead of mapped from a file.
std::uint64_t bytes_to_make(const ModelSource& source, bool synthetic, std::optional<DType> dtype) {
  std::uint64_t bytes = 0;
  for (const std::string_view name : source.names()) {
    const TensorInfo& tensor = *source.find(name);
    if (!synthetic && (!dtype || tensor.dtype.dtype == dtype)) continue;
    const bool converted = dtype && tensor.dtype.dtype;
    bytes += converted ? static_cast<std::uint64_t>(tensor.num_elements()) * size_of(*dtype) : tensor.size_bytes;
  }
  return bytes;
}

// Of several ranks, what each holds: ", 12.1 MiB on rank 0, ...".
std::string text_of(const RankModels& ranks) {
  std::string text;
  for (std::size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank)
    text += fmt::format(", {} on rank {}", memory_text(ranks[rank].model->shape().weight_bytes), rank);
  return text;
}

// What `heddle tune` has found; nothing: it did not run.
std::optional<SplitOptions> tuned_split_here(const SplitKey& key) {
  const TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  return tuned_split(store, key);
}

TunedModes tuned_modes_here(const SplitKey& key) {
  const TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  return {.split = tuned_split(store, key), .sums = tuned_sums(store, key)};
}

// Of a run of processes: all are on this machine, over the fabric that they get there.
bool run_shares_memory() {
  return read_launch().on_one_machine() && std::getenv("HEDDLE_FABRIC") == nullptr;
}

// What `heddle bench collective --tune` has found for the fabric by which the ranks reach each other. On GPUs it measures
// symmetric memory, where a model's tensors do not lie.
CutOffs tuned_sums_here(bool processes, Device device, int ranks) {
  if (device.kind == DeviceKind::cuda) return {};
  const char* const asked = std::getenv("HEDDLE_FABRIC");
  const std::string_view fabric = processes && asked != nullptr ? asked : "shm";
  const TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  return tuned_cut_offs(store, Collective::all_reduce, fabric, ranks).value_or(CutOffs{});
}

// Of TpMode::weave.
SplitOptions weave_split(const ModelOptions& options, const SplitKey& key) {
  SplitOptions split = options.split_tokens
                           ? SplitOptions{.kind = SplitKind::smart, .min_tokens = *options.split_tokens}
                           : tuned_split_here(key).value_or(untuned_split(key));
  split.transfer_sms = options.transfer_sms.value_or(split.transfer_sms);
  return split;
}

std::string text_of(const SplitOptions& split) {
  if (split.kind == SplitKind::none)
    return "no step is computed in two parts: none is known to be faster so (heddle tune token-weave; --split-tokens)";
  return fmt::format(
      "steps of {} tokens or more are computed in two parts; smaller ones, and those with fewer than two tiles of a "
      "GEMM, as a whole",
      split.min_tokens);
}

std::string_view words_of(SumForm form) {
  switch (form) {
    case SumForm::separate:
      return "by themselves";
    case SumForm::fused:
      return "in one operator";
    case SumForm::sharded:
      return "divided by token, transfers within the GEMMs";
    case SumForm::of_mode:
      break;
  }
  return name_of(form);
}

std::string text_of(const ChoiceTables& tables) {
  std::string text;
  for (const SumLine& line : tables.forms) {
    const bool last = line.up_to_tokens == std::numeric_limits<int>::max();
    text += fmt::format("heddle: steps of {}: sum, residual and norm {}\n",
                        last ? std::string("more tokens") : fmt::format("up to {} tokens", line.up_to_tokens),
                        words_of(line.form));
  }
  if (!tables.sums.empty()) text += "heddle: sums of ranks as measured by heddle bench collective --tune\n";
  return text;
}

// What a table that is shipped says of a model on GPUs that all have one name.
std::optional<ShippedDecode> shipped_decode_here(const SplitKey& key) {
  const std::vector<std::string> gpus = installed_gpus();
  if (key.device != DeviceKind::cuda || gpus.empty() || std::ranges::count(gpus, gpus.front()) != std::ssize(gpus))
    return std::nullopt;
  return shipped_decode(gpus.front(), key);
}

// How rank 0 chooses the attention of decode steps. What was tuned on this machine comes before what is shipped, whose
// `from` is empty otherwise.
ShippedDecode decode_table(const ModelSource& source, const ModelOptions& options, const std::vector<Device>& devices) {
  if (options.decode == DecodeMode::plain) return {};
  if (options.decode == DecodeMode::fused) return {.table = forced_decode(devices.front().kind), .from = {}};
  const TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  const SplitKey key = split_key_of(source, options, devices);
  if (std::optional<DecodeTable> tuned = tuned_decode(store, key)) return {.table = std::move(*tuned), .from = {}};
  return shipped_decode_here(key).value_or(ShippedDecode{});
}

// Of a tuned table without a fused line.
std::string why_all_plain(const DecodeTable& table) {
  double least = 0, most = 0;
  for (const DecodeLine& line : table) {
    if (!line.times || !(line.times->separate_seconds > 0)) continue;
    const double ratio = line.times->fused_seconds / line.times->separate_seconds;
    least = least == 0 ? ratio : std::min(least, ratio);
    most = std::max(most, ratio);
  }
  if (most == 0) return "tuning found nothing faster";
  const std::string from = fmt::format("{:.2f}", least), to = fmt::format("{:.2f}", most);
  return fmt::format("tuning found nothing faster, fused steps take {} times as long",
                     from == to ? from : from + " to " + to);
}

// Why all decode steps have separate operators, or what each has.
std::string text_of(const DecodeTable& table, const RankModels& ranks, const EngineOptions& engine, DecodeMode mode) {
  const Device device = ranks.front().model->device();
  const std::string separate = text_of(DecodeChoice{}, device.kind);
  if (table.empty())
    return fmt::format("heddle: decode steps: {}: {}\n", separate,
                       mode == DecodeMode::plain ? "--decode plain" : "nothing is tuned (heddle tune decode)");
  if (!has_fused(table)) return fmt::format("heddle: decode steps: {}: {}\n", separate, why_all_plain(table));
  const DecodeChooser chooser(table, ranks,
                              {.step = step_limits(device, engine), .page_size = page_size_of(device, engine)});
  std::string text;
  for (const std::string& line : chooser.lines()) text += fmt::format("heddle: {}\n", line);
  return text;
}

// How ranks add: what --tp-mode says, or what it stands for.
TpMode tp_mode_of(const ModelOptions& options) {
  return options.tp_mode == TpMode::automatic ? TpMode::standard : options.tp_mode;
}

// What outlines of the ranks are made from.
LoadOptions outline_options(const ModelOptions& options) {
  return {.dtype = options.dtype, .tp_mode = tp_mode_of(options), .context_ranks = options.context_ranks};
}

// Of a process among several its own part. Fails now, before the system's out-of-memory killer would, minutes later.
void check_memory(const ModelSource& source, const ModelOptions& options, std::int64_t available) {
  if (available <= 0) return;
  const bool synthetic = parse_synthetic_name(options.model).has_value();
  std::uint64_t needed = bytes_to_make(source, synthetic, options.dtype);
  if (synthetic && options.num_ranks() > 1) {
    const RankModels outlines = outline_ranks(source, outline_options(options), options.num_ranks());
    needed = weight_bytes(outlines);
    if (num_launched_ranks() > 1) {
      // Each process may have a limit of its own, of which the others take nothing; or they share what is available.
      const Launch launch = read_launch();
      needed = outlines[static_cast<std::size_t>(launch.rank)].model->shape().weight_bytes;
      const std::uint64_t together = needed * static_cast<std::uint64_t>(launch.num_local_ranks);
      if (launch.local_rank == 0 && together > static_cast<std::uint64_t>(available) &&
          needed <= static_cast<std::uint64_t>(available))
        log_warning("{}: the {} ranks on this machine need {} of memory, and this one has {}", options.model,
                    launch.num_local_ranks, size_text(together), size_text(static_cast<std::uint64_t>(available)));
    }
  }
  if (needed <= static_cast<std::uint64_t>(available)) return;
  throw_error<Failure>("{}: needs {} of memory{}, {} available; use {}", options.model, size_text(needed),
                       synthetic ? "" : " to convert its weights", size_text(static_cast<std::uint64_t>(available)),
                       synthetic ? "fewer layers (synth:NAME,layers=N)" : "--dtype auto, which maps them as stored");
}

// The use of a GPU's memory.
MemoryPlan plan_on(Device device, const ModelSource& source, const EngineOptions& engine, LoadOptions loading) {
  loading.device = device;
  std::size_t available = 0;
  if constexpr (kHaveCuda) available = cuda::memory_info(device.index).free_bytes;
  return plan_memory(*outline_model(source, loading), engine, available);
}

void set_limits(const ModelSource& source, const ModelOptions& options, EngineOptions& engine) {
  engine.max_context = options.context;
  engine.max_sequences = options.max_sequences.value_or(engine.max_sequences);
  engine.max_tokens_per_step = options.step_tokens.value_or(engine.max_tokens_per_step);
  if (options.step_tokens && *options.step_tokens < engine.max_sequences) {
    if (options.max_sequences)
      throw_error<InputError>(
          "--step-tokens {}: each of {} prompts needs a token of a step; --max-sequences {} or less",
          *options.step_tokens, engine.max_sequences, *options.step_tokens);
    engine.max_sequences = *options.step_tokens;
  }
  if (options.kv_bytes) engine.kv_bytes = options.kv_bytes;
  const std::optional<std::int64_t> context = describe_model(source.config()).context;
  if (options.context && context && *options.context > *context)
    log_warning("--context {}: the model's context is {}, and texts end there", *options.context, *context);
  if (!options.kv_bytes) return;
  try {
    executor_limits(outline_ranks(source, outline_options(options), options.num_ranks()), engine, 0);
  } catch (const Failure& failure) {
    throw_error<InputError>("--kv-memory: {}", failure.what());
  }
}

RankDevices choose_for_ranks(const ModelOptions& options) {
  const bool cpu_asked = options.device && options.device->kind == DeviceKind::cpu;
  if (!cpu_asked) prepare_shared_gpus(devices_named(options.devices));
  const GpuDiscovery gpus = cpu_asked ? GpuDiscovery{} : discover_gpus();
  RankDevices choice = choose_rank_devices(options.devices, options.num_ranks(), gpus);
  const bool on_cpu = choice.devices.front().kind == DeviceKind::cpu;
  if (on_cpu && !gpus.gpus.empty()) log_warning("{} ranks: on the CPU: {}", options.num_ranks(), choice.reason);
  if (options.verbose && !on_cpu)
    for (std::size_t rank = 0; rank < choice.devices.size(); ++rank)
      write_stderr(fmt::format("heddle: rank {} on {} ({})\n", rank, name_of(choice.devices[rank]), choice.reason));
  return choice;
}

// Of the ranks of a run that `heddle launch` has started.
ModelOptions options_of_run(ModelOptions options, int ranks) {
  if (options.context_ranks != 1)
    throw_error<InputError>(
        "--cp {} in a run of {} ranks: --cp runs on threads of one process; leave out heddle launch",
        options.context_ranks, ranks);
  if (options.ranks != 1 && options.ranks != ranks)
    throw_error<InputError>("--tp {} in a run of {} ranks: each is a process; leave out --tp", options.ranks, ranks);
  if (options.device && options.device->kind != DeviceKind::cpu)
    throw_error<InputError>(
        "--device {} in a run of {} ranks: ranks that are processes run on the CPU alone. On the GPUs of one machine "
        "ranks "
        "are threads: heddle ... --tp {} --device cuda:0,... without heddle launch",
        options.devices, ranks, ranks);
  if (ranks > kMaxRanks) throw_error<InputError>("a run of {} ranks: a model has at most {}", ranks, kMaxRanks);
  options.ranks = ranks;
  options.device = Device{};
  options.devices = "cpu";
  return options;
}

DeviceChoice choose(const ModelSource& source, const ModelOptions& options, const EngineOptions& engine,
                    const LoadOptions& loading) {
  require_one_device(options.devices);
  const bool cpu_asked = options.device && options.device->kind == DeviceKind::cpu;
  const GpuDiscovery gpus = cpu_asked ? GpuDiscovery{} : discover_gpus();
  std::optional<MemoryPlan> plan;
  bool passed_over = false;
  DeviceChoice choice = choose_device(options.device, gpus, [&](Device device) -> std::string {
    try {
      plan = plan_on(device, source, engine, loading);
    } catch (const Failure& failure) {  // a GPU that exists and does not answer
      return failure.what();
    }
    const std::string reason = why_too_large(*plan);
    passed_over = passed_over || !reason.empty();
    return reason.empty() ? reason
                          : fmt::format("{} has too little memory for {}: {}", name_of(device), options.model, reason);
  });
  // Otherwise slow tokens would be the only sign of it.
  if (passed_over && choice.device.kind == DeviceKind::cpu) log_warning("{}; on the CPU", choice.reason);
  if (options.verbose && choice.device.kind == DeviceKind::cuda)
    write_stderr(fmt::format("heddle: on {} ({}): {}\n", name_of(choice.device), choice.reason, text_of(*plan)));
  return choice;
}

}  // namespace

void add_device_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option_function<std::string>(
          "--device",
          [&options](const std::string& name) {
            if (name == "auto") return;
            const std::vector<Device> devices = devices_named(name);
            if (devices.empty())
              throw CLI::ValidationError(
                  "--device",
                  fmt::format("is \"{}\", expected auto, cpu, cuda or cuda:N, or several with commas", name));
            options.device = devices.front();
            options.devices = name;
          },
          "Where the model runs: cpu, cuda or cuda:N; with --tp one for each rank, like cuda:0,cuda:1, and "
          "cuda:0,cuda:0 "
          "for two that share a GPU; auto: a GPU that can run it, else the CPU (heddle doctor says why)")
      ->type_name("DEVICE:{auto,cpu,cuda}")  // the shells complete these; help shows its own text
      ->option_text("DEVICE=auto")
      ->default_str("auto");
}

namespace {

// "4GiB", "500MB", "1024"; nothing: no such size, or 0.
std::optional<std::int64_t> whole_size_in(const std::string& text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;  // CLI11 reads "GiB" as 1 GiB
  std::string bytes = text;
  std::int64_t value = 0;
  try {
    const std::string error = CLI::AsSizeValue(true)(bytes);
    if (!error.empty() || !CLI::detail::lexical_cast(bytes, value) || value <= 0) return std::nullopt;
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  return value;
}

// The same, and "1.5GiB".
std::optional<std::int64_t> size_in(const std::string& text) {
  constexpr double kMost = 0x1p62;
  const std::size_t point = text.find('.');
  if (point == std::string::npos || point == 0) return whole_size_in(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end < text.data() + point) return std::nullopt;
  const auto unit = whole_size_in("1" + std::string(end, text.data() + text.size()));
  if (!unit) return std::nullopt;
  const double bytes = number * static_cast<double>(*unit);
  return bytes >= 1 && bytes < kMost ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
}

}  // namespace

CLI::Option* add_model_option(CLI::App& command, std::string& model, const std::string& description) {
  std::vector<std::string> names;
  names.reserve(kKnownShapes.size());
  for (const KnownShape& shape : kKnownShapes) names.push_back(fmt::format("synth:{}", shape.name));
  return command.add_option("-m,--model,model", model, description)
      ->required()
      ->check([](const std::string& given) {  // of -m=MODEL; a folder of such a name is ./=MODEL
        return given.starts_with('=')
                   ? fmt::format("is \"{}\"; write -m {} or --model{}", given, given.substr(1), given)
                   : std::string();
      })
      ->type_name(fmt::format("MODEL:{{{}}}", fmt::join(names, ",")))  // for the shells, as with --device
      ->option_text("MODEL REQUIRED");
}

void add_limit_options(CLI::App& command, ModelOptions& options, Sequences sequences) {
  add_number_option<std::int64_t>(command, "--context", options.context,
                                  "Tokens of a sequence at most, prompt and answer; default: the model's context",
                                  {.min = 2});
  command
      .add_option_function<std::string>(
          "--kv-memory",
          [&options](const std::string& text) {
            options.kv_bytes = size_in(text);
            if (!options.kv_bytes)
              throw CLI::ValidationError("--kv-memory",
                                         fmt::format("is \"{}\", expected a size like 4GiB, 1.5GiB or 500MB", text));
          },
          "Memory of the KV cache at most, like 4GiB; default: a quarter of the free memory on the CPU, all of it on a "
          "GPU")
      ->type_name("SIZE");
  if (sequences == Sequences::one) return;
  add_number_option<int>(command, "--max-sequences", options.max_sequences,
                         "Prompts that run at once; others wait; default 64", {.min = 1, .max = 1 << 12});
  add_number_option<int>(command, "--step-tokens", options.step_tokens,
                         "Tokens of a step at most, of all prompts together; longer prompts are computed in several "
                         "steps; default 512 on the CPU and 4096 on a GPU",
                         {.min = 1, .max = 1 << 17});
}

void add_ranks_option(CLI::App& command, int& ranks) {
  add_number_option<int>(command, "--tp", ranks,
                         "Ranks that share the model, each with its part of the weights (tensor parallelism): threads "
                         "of this process, on the CPU or on GPUs (--device); default 1",
                         {.min = 1, .max = kMaxRanks});
}

void add_context_ranks_option(CLI::App& command, int& context_ranks) {
  add_number_option<int>(command, "--cp", context_ranks,
                         "Ranks that divide the keys and values of each text by position (context parallelism): a "
                         "text may then be longer than one rank's cache; with --tp N as many for each part of the "
                         "weights; default 1",
                         {.min = 1, .max = kMaxRanks});
}

void require_ranks(int ranks, int context_ranks) {
  if (ranks * context_ranks > kMaxRanks)
    throw_error<InputError>("--tp {} with --cp {}: {} ranks, and a model has at most {}", ranks, context_ranks,
                            ranks * context_ranks, kMaxRanks);
}

void add_transfer_sms_option(CLI::App& command, ModelOptions& options) {
  add_number_option<int>(
      command, "--transfer-sms", options.transfer_sms,
      "With --tp-mode weave on GPUs, SMs of each that sum over ranks while the others compute; default "
      "8",
      {.min = 1, .max = 66});
}

void add_tensor_parallel_options(CLI::App& command, ModelOptions& options) {
  add_ranks_option(command, options.ranks);
  add_context_ranks_option(command, options.context_ranks);
  command
      .add_option_function<std::string>(
          "--tp-mode", [&options](const std::string& name) { options.tp_mode = *tp_mode_named(name); },
          "With --tp, how ranks add what blocks leave: default: an all-reduce (by NCCL where each rank has a GPU of "
          "its "
          "own), then the norm; symmetric: the same, by Heddle's own all-reduce; fused: all-reduce, residual and norm "
          "in "
          "one; weave: fused, while another part of the batch computes; sequence (no experts): each rank "
          "normalises its own tokens, and GEMMs gather and sum them tile by tile, small steps on GPUs as fused; "
          "no-comm: nothing crosses ranks, so the text is wrong; "
          "auto: what heddle tune found fastest, else default on the CPU and with --cp, and on GPUs fused, small steps "
          "as symmetric")
      ->check(CLI::IsMember(tp_mode_names()))
      ->default_str("auto");
  command
      .add_option_function<std::string>(
          "--decode", [&options](const std::string& name) { options.decode = *decode_mode_named(name); },
          "How steps that decode compute attention with its norm and projections: plain: by separate operators; fused: "
          "by one, where it takes the step, and --verbose says where not; auto: what heddle tune decode found fastest, "
          "else plain")
      ->check(CLI::IsMember(decode_mode_names()))
      ->default_str("auto");
  add_number_option<int>(
      command, "--split-tokens", options.split_tokens,
      "With --tp-mode weave, tokens of the smallest step that is computed in two parts; default "
      "what heddle tune token-weave found, else 16384 on GPUs, and none on the CPU or of a model with "
      "experts",
      {.min = 2, .max = 1 << 20});
  add_transfer_sms_option(command, options);
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_model_option(command, options.model,
                   "Folder of the model (Hugging Face layout), ORG/NAME in the cache of Hugging Face, or synth:NAME");
  add_device_option(command, options);
  command
      .add_option_function<std::string>(
          "--dtype",
          [&options](const std::string& name) {
            if (name != "auto") options.dtype = dtype_named(name);
          },
          "Dtype of the weights and the KV cache; auto: as stored")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->default_str("auto");
  command
      .add_option_function<std::string>(
          "--compute",
          [&options](const std::string& name) {
            options.compute = name == "float32" ? Compute::float32 : Compute::automatic;
          },
          "Matmul precision; auto: activations are rounded to bfloat16 where weights are bfloat16, sums in float32; "
          "float32: never rounded")
      ->check(CLI::IsMember({"auto", "float32"}))
      ->default_str("auto");
  add_number_option<int>(command, "--threads", options.threads, "Processor threads; default: all usable",
                         {.min = 1, .max = 1024});
}

std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options) {
  require(options.num_ranks() == 1, "a model on {} ranks has no whole", options.num_ranks());
  require_no_run("bench load");  // which alone loads a whole
  EngineOptions engine;
  return std::move(load(source, options, engine).front().model);
}

RankModels load(const ModelSource& source, const ModelOptions& given, EngineOptions& engine) {
  const int launched = num_launched_ranks();
  const ModelOptions options = launched > 1 ? options_of_run(given, launched) : given;
  const CpuInfo cpu = discover_cpu();
  require_ranks(options.ranks, options.context_ranks);
  LoadOptions loading = outline_options(options);
  loading.compute = options.compute;
  const bool follows = launched > 1 && read_launch().rank != 0;
  if (!follows) {
    for (const std::string& warning : source.warnings()) log_warning("{}", warning);
    if (options.ranks > 1 && loading.tp_mode == TpMode::no_comm)
      log_warning("--tp-mode no-comm: nothing crosses ranks, so the text is wrong; it is for measurements alone");
    if (options.ranks == 1 && options.tp_mode != TpMode::automatic)
      log_warning("--tp-mode {}: has no effect on one rank; --tp N gives more", name_of(options.tp_mode));
    if (options.tp_mode != TpMode::weave && options.split_tokens)
      log_warning("--split-tokens has no effect with --tp-mode {}; --tp-mode weave computes steps in two parts",
                  name_of(options.tp_mode));
    if (options.tp_mode != TpMode::weave && options.transfer_sms && options.tp_mode != TpMode::automatic)
      log_warning("--transfer-sms has no effect with --tp-mode {}; --tp-mode weave has steps in two parts",
                  name_of(options.tp_mode));
  }
  set_limits(source, options, engine);
  std::vector<Device> devices;
  std::string reason;
  if (options.num_ranks() > 1) {
    RankDevices choice = choose_for_ranks(options);
    devices = std::move(choice.devices);
    reason = std::move(choice.reason);
  } else {
    DeviceChoice choice = choose(source, options, engine, loading);
    devices = {choice.device};
    reason = std::move(choice.reason);
  }
  engine.threads = num_threads(options, cpu.usable_threads / (launched > 1 ? read_launch().num_local_ranks : 1));
  if (devices.front().kind == DeviceKind::cpu) {
    check_memory(source, options, cpu.available_memory_bytes);
    if (cpu.available_memory_bytes > 0 && !engine.kv_bytes) engine.kv_bytes = cpu.available_memory_bytes / 4;
    if (options.verbose) write_stderr(fmt::format("heddle: on the CPU: {}\n", reason));
  }
  if (options.threads > cpu.usable_threads)
    log_warning("--threads {}: {} can run at a time here, and more are slower", options.threads, cpu.usable_threads);
  if (devices.front().kind == DeviceKind::cpu && launched == 1 && options.num_ranks() > std::max(1, cpu.usable_threads))
    log_warning("{} ranks: {} threads can run at a time here, and ranks that wait for each other's turns are slower",
                options.num_ranks(), cpu.usable_threads);
  if (options.ranks > 1) {
    const SplitKey key = split_key_of(source, options, devices);
    // Of processes rank 0 alone asks, since others could have other answers. The mode and the sizes of steps that it finds
    // hold for all (RankWorld::mode, StepPlan). What was tuned needs the others' memory, so machines have the default.
    if (options.tp_mode == TpMode::automatic && options.context_ranks == 1 && !follows &&
        (launched == 1 || run_shares_memory())) {
      ModeChoice choice = choose_mode(tuned_modes_here(key), key);
      loading.tp_mode = choice.mode;
      engine.split = choice.split;
      engine.split.transfer_sms = key.transfer_sms;
      if (uses_all_reduce_norm(choice.mode)) engine.tables.forms = std::move(choice.sums);
    } else if (loading.tp_mode == TpMode::weave || loading.tp_mode == TpMode::sequence) {
      if (loading.tp_mode == TpMode::weave) engine.split = weave_split(options, key);
      engine.tables.forms = tuned_modes_here(key).sums.value_or(untuned_sums(loading.tp_mode, key.device));
      if (loading.tp_mode == TpMode::weave) engine.tables.forms = unsharded(engine.tables.forms);
    }
    // Measured between threads of one process.
    if (launched == 1 && loading.tp_mode == TpMode::sequence)
      add_tuned_gathers(engine.tables, source, options, devices);
    if (!follows && loading.tp_mode != TpMode::symmetric)
      engine.tables.sums = tuned_sums_here(launched > 1, devices.front(), options.ranks);
    if (options.verbose && !follows) {
      write_stderr(fmt::format("heddle: --tp-mode {}\n", name_of(loading.tp_mode)));
      write_stderr(text_of(engine.tables));
      if (loading.tp_mode == TpMode::sequence) write_stderr(text_of_gathers(engine.tables));
      if (loading.tp_mode == TpMode::weave) write_stderr(fmt::format("heddle: {}\n", text_of(engine.split)));
    }
  }
  ShippedDecode decode = follows ? ShippedDecode{} : decode_table(source, options, devices);
  engine.tables.decode = std::move(decode.table);
  Progress progress("loading", source.total_bytes(), kGigabytes, shown_unless(options.quiet));
  loading.on_progress = [&](std::size_t done) { progress.update(done); };
  const auto begin = std::chrono::steady_clock::now();
  const RankOptions run{.steps = step_limits(devices.front(), engine)};
  RankModels ranks = launched > 1 ? load_launched_rank(source, loading, facts_of(source, given), run)
                                  : load_ranks(source, loading, devices, run);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (options.verbose)
    write_stderr(fmt::format("heddle: {} of weights loaded in {:.2f} s, {:.1f} GB/s{}\n",
                             memory_text(weight_bytes(ranks)), taken.count(),
                             static_cast<double>(source.total_bytes()) / taken.count() / 1e9, text_of(ranks)));
  if (options.verbose && !follows) {
    if (!decode.from.empty())
      write_stderr(fmt::format("heddle: decode steps as measured on such a GPU, {}; heddle tune decode measures here\n",
                               decode.from));
    write_stderr(text_of(engine.tables.decode, ranks, engine, options.decode));
  }
  if (const auto most = ranks.front().model->shape().most_absorbed; options.verbose && most)
    write_stderr(fmt::format(
        "heddle: latent attention: absorbed up to {} new tokens of a text in a step, above expanded\n", *most));
  return ranks;
}

void report_parts(const Engine& engine, const ModelOptions& options) {
  const PartCounts& counts = engine.part_counts();
  if (!options.verbose || counts.tile_tokens == 0) return;
  write_stderr(
      fmt::format("heddle: {} of {} steps were computed in two parts; {} stayed whole because they have fewer than two "
                  "tiles of {} tokens\n",
                  counts.in_two_parts, counts.steps, counts.below_two_tiles, counts.tile_tokens));
}

SplitKey split_key_of(const ModelSource& source, const ModelOptions& options, const std::vector<Device>& devices) {
  const ModelDescription model = describe_model(source.config());
  std::string dtype = options.dtype ? std::string(name_of(*options.dtype)) : "stored";
  if (options.compute == Compute::float32) dtype += "-in-float32";
  const Device first = devices.front();
  const bool shared = first.kind == DeviceKind::cuda && std::ranges::count(devices, first) > 1;
  return {.layers = model.layers.value_or(0),
          .hidden = model.hidden.value_or(0),
          .intermediate = model.intermediate.value_or(0),
          .heads = model.heads.value_or(0),
          .kv_heads = model.kv_heads.value_or(0),
          .head_dim = model.latent ? model.latent->cached() : model.head_dim.value_or(0),
          .experts = model.experts ? model.experts->count : 0,
          .dtype = std::move(dtype),
          .ranks = options.ranks,
          .device = first.kind,
          .shared = shared,
          .transfer_sms = options.transfer_sms.value_or(SplitOptions{}.transfer_sms)};
}

std::string explain_bad_logits(const std::string& model, const std::string& error) {
  std::optional<std::string> damage;
  if (!parse_synthetic_name(model)) damage = find_damage(*open_model(model));
  if (damage) return fmt::format("{} Yes: {}", error, *damage);  // `error` ends by asking
  return error + " No, all are finite; with --dtype float32 nothing overflows that fits float32";
}

void fail_by_damaged_weights(const std::string& model, const std::string& error) {
  throw InputError(explain_bad_logits(model, error));
}

std::vector<Device> devices_of(const ModelSource& source, const ModelOptions& options) {
  ModelOptions silent = options;
  silent.verbose = false;
  if (silent.num_ranks() > 1) return choose_for_ranks(silent).devices;
  return {choose(source, silent, {}, {.dtype = options.dtype, .compute = options.compute}).device};
}

Device device_of(const ModelSource& source, const ModelOptions& options) {
  return devices_of(source, options).front();
}

Tokenizer load_tokenizer(const std::string& model) {
  constexpr std::size_t kMaxShownToken = 100;
  Tokenizer tokenizer = load_model_tokenizer(model);
  for (const std::string_view setting : tokenizer.settings_not_applied())
    log_warning("{}: tokenizer.json asks for {}, which is not applied; transformers, too, does it only when asked",
                model, setting);
  if (const auto left_out = tokenizer.tokens_left_out(); !left_out.empty())
    log_warning("{}: {} of the tokens listed beside tokenizer.json are not in it, such as {}, and are not added", model,
                left_out.size(), printable(left_out.front(), kMaxShownToken));
  return tokenizer;
}

int num_threads(const ModelOptions& options, int usable_threads) {
  return options.threads > 0 ? options.threads : std::max(1, usable_threads);
}

}  // namespace heddle
