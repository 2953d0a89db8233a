#include "cli/model_options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "engine/model_tokenizer.h"
#include "models/registry.h"
#include "topology/cpu.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

// Of the weights that are made in memory, and not mapped from a file as they are.
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

// Better at once than at the hands of the system, minutes later.
void check_memory(const ModelSource& source, const ModelOptions& options, std::int64_t available) {
  if (available <= 0) return;
  const bool synthetic = parse_synthetic_name(options.model).has_value();
  const std::uint64_t needed = bytes_to_make(source, synthetic, options.dtype);
  if (needed <= static_cast<std::uint64_t>(available)) return;
  throw_error<Failure>("{}: needs {} of memory{}, {} available; use {}", options.model, size_text(needed),
                       synthetic ? "" : " to convert its weights", size_text(static_cast<std::uint64_t>(available)),
                       synthetic ? "fewer layers (synth:NAME,layers=N)" : "--dtype auto, which maps them as stored");
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Folder of the model (Hugging Face layout), or synth:NAME")->required();
  command
      .add_option_function<std::string>(
          "--dtype",
          [&options](const std::string& name) {
            if (name != "auto") options.dtype = dtype_named(name);
          },
          "Of the weights and the key-value cache; auto: as stored")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->default_str("auto");
  command
      .add_option_function<std::string>(
          "--compute",
          [&options](const std::string& name) {
            options.compute = name == "float32" ? Compute::float32 : Compute::automatic;
          },
          "Of products; auto: bfloat16 weights with activations rounded to bfloat16, sums in float32; float32: never "
          "rounded")
      ->check(CLI::IsMember({"auto", "float32"}))
      ->default_str("auto");
  add_number_option<int>(command, "--threads", options.threads, "Processor threads; default: all usable",
                         {.min = 1, .max = 1024});
}

std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options) {
  const CpuInfo cpu = discover_cpu();
  check_memory(source, options, cpu.available_memory_bytes);
  if (options.threads > cpu.usable_threads)
    log_warning("--threads {}: {} can run at a time here, and more are slower", options.threads, cpu.usable_threads);
  Progress progress("loading", source.total_bytes());
  return load_model(source, {.dtype = options.dtype, .compute = options.compute, .on_progress = [&](std::size_t done) {
                               progress.update(done);
                             }});
}

Tokenizer load_tokenizer(const std::string& model) {
  Tokenizer tokenizer = load_model_tokenizer(model);
  for (const std::string_view setting : tokenizer.settings_not_applied())
    log_warning("{}: tokenizer.json asks for {}, which is not applied; transformers, too, does it only when asked",
                model, setting);
  return tokenizer;
}

int num_threads(const ModelOptions& options, int usable_threads) {
  return options.threads > 0 ? options.threads : usable_threads;
}

}  // namespace heddle
