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
#include "models/rope_config.h"
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

// The same of config.json and of the tensors: how they are quantised, else each dtype that cannot be loaded.
std::vector<std::string> unsupported_in(const ModelSource& source);

// Makes load_model's checks without reading weights. Throws InputError where the config, or a tensor's name, shape or
// dtype, does not match the architecture.
void check_model(const ModelSource& source);

// Of the layers with experts.
struct ExpertsDescription {
  std::int64_t count = 0;  // routed
  std::int64_t per_token = 0;
  std::int64_t shared = 0;
  std::int64_t intermediate = 0;  // of each
  std::int64_t dense_layers = 0;  // before them
  std::string scoring;            // "softmax" or "sigmoid"
  std::string method;             // of the choice, as topk_method in DeepSeek's config.json: "greedy"
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  bool normalized = false;  // weights of a token's experts sum to 1, before scaling
  double scaling = 1;
};

// Of latent attention, by DeepSeek's names.
struct LatentDescription {
  std::int64_t kv_lora_rank = 0;
  std::int64_t q_lora_rank = 0;  // 0: queries are one projection
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  std::int64_t cached() const { return kv_lora_rank + qk_rope_head_dim; }  // elements of a token and layer
};

// The sizes of a model, for display. Nothing: config.json does not state it.
struct ModelDescription {
  std::optional<std::int64_t> context, layers, hidden, intermediate, heads, kv_heads, head_dim, vocab_size;
  std::optional<ExpertsDescription> experts;  // nothing: no layer has any
  std::optional<LatentDescription> latent;    // nothing: attention has keys and values
  std::vector<int> windows;                   // [layers] of sliding-window attention, 0: none; empty: not known
  std::optional<RopeConfig> rope;
  std::optional<bool> tied_embeddings;
  std::vector<std::int32_t> eos_ids;  // of config.json
};

// Reads the fields that most architectures share. For a supported architecture, it also fills in the defaults (a
// head_dim, say). Never throws because of the config's contents.
ModelDescription describe_model(const JsonField& config);

}  // namespace heddle
