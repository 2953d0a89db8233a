// The options that name a model and say how to run it, for all commands that load one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/device.h"
#include "engine/engine.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"
#include "weights/model_source.h"

namespace CLI {
class App;
}

namespace heddle {

struct ModelOptions {
  std::string model;
  std::optional<Device> device;  // nothing: a GPU that can run it, else the CPU
  std::optional<DType> dtype;
  Compute compute = Compute::automatic;
  int threads = 0;       // 0: all threads that this process may use
  bool verbose = false;  // report on standard error where the model runs, why, and the memory it needs
  bool quiet = false;    // no progress bar
};

// Only --device.
void add_device_option(CLI::App& command, ModelOptions& options);

// --model, --device, --dtype, --compute and --threads. `options` must outlive `command`.
void add_model_options(CLI::App& command, ModelOptions& options);

// Chooses the device and loads, with a progress bar on standard error. Throws as choose_device and load_model do, and
// Failure when available memory is too small for an engine with the given options. Sets the engine's threads and, on
// the CPU, kv_bytes. Warns if there are more threads than usable.
std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options, EngineOptions& engine);
std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options);

// The device that load() chooses.
Device device_of(const ModelSource& source, const ModelOptions& options);

// The tokenizer of what a user calls `model`. Throws as load_model_tokenizer does; warns about settings in its file
// that Heddle does not apply.
Tokenizer load_tokenizer(const std::string& model);

// The requested threads, or all usable ones; `usable_threads` from discover_cpu().
int num_threads(const ModelOptions& options, int usable_threads);

}  // namespace heddle
