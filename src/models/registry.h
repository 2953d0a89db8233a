// The architectures that Heddle supports, by their names in config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/architecture.h"
#include "models/model.h"
#include "weights/model_source.h"

namespace heddle {

// Loads the model of `source` onto options.device. Throws InputError when the architecture is unknown, or when
// config.json or the tensors do not match it; Failure when the device has too little memory.
std::unique_ptr<Model> load_model(const ModelSource& source, const LoadOptions& options);

// The same without its weights, which takes no time and no memory: for the model's shape, and for dry runs
// (kernels/dry_run.h). It cannot run otherwise.
std::unique_ptr<Model> outline_model(const ModelSource& source, const LoadOptions& options);

// Names of the supported architectures, for messages.
std::vector<std::string> known_architectures();

// What config.json asks for and load_model does not support, the architecture first: one sentence each; empty if
// nothing. Throws InputError where the config is malformed.
std::vector<std::string> unsupported(const JsonField& config);

// Makes load_model's checks without reading weights. Throws InputError where the config, or a tensor's name, shape or
// dtype, does not match the architecture.
void check_model(const ModelSource& source);

// The sizes of a model, for display. Nothing: config.json does not state it.
struct ModelDescription {
  std::optional<std::int64_t> context, layers, hidden, intermediate, heads, kv_heads, head_dim, vocab_size;
  std::optional<std::int64_t> experts, experts_per_token, shared_experts;  // of a layer that has; nothing: none has
  std::optional<std::int64_t>
      latent;                       // elements that latent attention caches of a token and layer; nothing: it has none
  std::vector<int> windows;         // [layers] of sliding-window attention, 0: none; empty: not known
  std::optional<std::string> rope;  // "theta 500000, llama3 scaling by 32 from 8192 positions"
  std::optional<bool> tied_embeddings;
  std::vector<std::int32_t> eos_ids;  // of config.json
};

// Reads the fields that most architectures share. For a supported architecture, it also fills in the defaults (a
// head_dim, say). Never throws because of the config's contents.
ModelDescription describe_model(const JsonField& config);

}  // namespace heddle
