// The options that name a model and say how to run it, for all commands that load one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "engine/engine.h"
#include "engine/rank_facts.h"
#include "engine/rank_models.h"
#include "models/model.h"
#include "parallel/decode_choice.h"
#include "parallel/tuned_split.h"
#include "text/tokenizer/tokenizer.h"
#include "weights/model_source.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heddle {

struct ModelOptions {
  std::string model;
  std::optional<Device> device;  // the first that is named; nothing: a GPU that can run it, else the CPU
  std::string devices;           // as they are named: one, or with `ranks` one for each rank; empty: none is
  std::optional<DType> dtype;
  Compute compute = Compute::automatic;
  int threads = 0;        // 0: all threads that this process may use
  int ranks = 1;          // that divide the weights: tensor parallelism
  int context_ranks = 1;  // that divide the keys and values, for each part of the weights: context parallelism
  TpMode tp_mode = TpMode::automatic;
  DecodeMode decode = DecodeMode::automatic;
  std::optional<int> split_tokens;  // TpMode::weave: tokens of the smallest step in two parts; nothing: as tuned
  std::optional<int> transfer_sms;  // likewise: SMs that sum while the others compute; nothing: SplitOptions' default
  bool verbose = false;             // report on standard error where the model runs, why, and the memory it needs
  bool quiet = false;               // no progress bar
  std::vector<RankFact> given;      // the command and its options, which the processes of a run compare (launched.h)

  // Limits; nothing: as large as model and memory allow.
  std::optional<std::int64_t> context;   // tokens of a sequence
  std::optional<std::int64_t> kv_bytes;  // of the key-value cache
  std::optional<int> max_sequences;      // that run at once
  std::optional<int> step_tokens;        // of a step

  int num_ranks() const { return ranks * context_ranks; }
};

// Only --device.
void add_device_option(CLI::App& command, ModelOptions& options);

// -m, --model and the same as the first positional argument.
CLI::Option* add_model_option(CLI::App& command, std::string& model, const std::string& description);

// --model, --device, --dtype, --compute and --threads. `options` must outlive `command`.
void add_model_options(CLI::App& command, ModelOptions& options);

// --tp.
void add_ranks_option(CLI::App& command, int& ranks);

// --cp.
void add_context_ranks_option(CLI::App& command, int& context_ranks);

// --transfer-sms.
void add_transfer_sms_option(CLI::App& command, ModelOptions& options);

// Throws InputError for more ranks than a model may have.
void require_ranks(int ranks, int context_ranks);

// --tp, --tp-mode, --cp and --decode.
void add_tensor_parallel_options(CLI::App& command, ModelOptions& options);

// --context and --kv-memory; and --max-sequences and --step-tokens for commands that run several.
enum class Sequences : std::uint8_t { one, many };
void add_limit_options(CLI::App& command, ModelOptions& options, Sequences sequences);

// Chooses the device and loads, with a progress bar on standard error. Throws as choose_device and load_model do,
// Failure when available memory is too small for an engine with the given options, and InputError when --kv-memory is
// less than a page. Sets the engine's threads, its limits and, on the CPU, kv_bytes. Warns if there are more threads
// than usable, of a context beyond the model's, and what source.warnings() says. Throws InputError for more ranks than
// the model has pieces, and for several devices without as many ranks.
RankModels load(const ModelSource& source, const ModelOptions& options, EngineOptions& engine);

// With --verbose and TpMode::weave: how many of the engine's steps were computed in two parts, and why others were not.
void report_parts(const Engine& engine, const ModelOptions& options);

// Without an engine, on one rank.
std::unique_ptr<Model> load(const ModelSource& source, const ModelOptions& options);

// `error`, which describes logits that were not finite, with the damaged tensor of `model`, or that there is none. Reads
// all weights.
std::string explain_bad_logits(const std::string& model, const std::string& error);

// Throws it as an InputError.
[[noreturn]] void fail_by_damaged_weights(const std::string& model, const std::string& error);

// What `heddle tune` stores its choices by. `devices`: of all ranks.
SplitKey split_key_of(const ModelSource& source, const ModelOptions& options, const std::vector<Device>& devices);

// The devices that load() chooses, one for each rank; the first of them.
std::vector<Device> devices_of(const ModelSource& source, const ModelOptions& options);
Device device_of(const ModelSource& source, const ModelOptions& options);

// The tokenizer of what a user calls `model`. Throws as load_model_tokenizer does; warns about settings in its file
// that Heddle does not apply.
Tokenizer load_tokenizer(const std::string& model);

// The requested threads, or all usable ones; `usable_threads` from discover_cpu().
int num_threads(const ModelOptions& options, int usable_threads);

}  // namespace heddle
