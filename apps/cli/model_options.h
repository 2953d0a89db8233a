// The options that name a model and say how it is to be run, for all commands that load one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/tokenizer/tokenizer.h"
#include "models/model.h"
#include "weights/model_source.h"

namespace CLI {
class App;
}

namespace heddle {

struct ModelOptions {
  std::string model;
  std::optional<DType> dtype;
  Compute compute = Compute::automatic;
  int threads = 0;  // 0: all that this process may use
};

// --model, --dtype, --compute and --threads. `options` must outlive `command`.
void add_model_options(CLI::App& command, ModelOptions& options);

// Loads with a progress bar on standard error. Throws as load_model does, and Failure when weights that
// are to be made up or converted exceed the memory that is available. Warns of more threads than are usable.
std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options);

// The tokenizer of what a user calls `model`. Throws as load_model_tokenizer does; warns where its file asks for what
// is not done.
Tokenizer load_tokenizer(const std::string& model);

// Those asked for, or all that are usable; `usable_threads` from discover_cpu().
int num_threads(const ModelOptions& options, int usable_threads);

}  // namespace heddle
