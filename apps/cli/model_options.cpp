#include "cli/model_options.h"

#include <CLI/CLI.hpp>

#include "base/progress.h"
#include "cli/number_option.h"
#include "models/registry.h"

namespace heddle {

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
  Progress progress("loading", source.total_bytes());
  return load_model(source, {.dtype = options.dtype, .compute = options.compute, .on_progress = [&](std::size_t done) {
                               progress.update(done);
                             }});
}

int num_threads(const ModelOptions& options, int usable_threads) {
  return options.threads > 0 ? options.threads : usable_threads;
}

}  // namespace heddle
