// The architectures Heddle knows, by the name that config.json gives.
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

// The model of `source`, on options.device. Throws InputError when the architecture is not known, or when config.json
// or the tensors are not as the architecture asks for; Failure when the device has too little memory.
std::unique_ptr<Model> load_model(const ModelSource& source, const LoadOptions& options);

// The same without its weights, which takes no time and no memory: for its shape and the memory that it will take.
// It cannot run.
std::unique_ptr<Model> outline_model(const ModelSource& source, const LoadOptions& options);

// Names that load_model knows, for messages.
std::vector<std::string> known_architectures();

// What config.json asks for and load_model refuses, the architecture first: one sentence each; empty when nothing.
// Throws InputError where the config is malformed.
std::vector<std::string> unsupported(const JsonField& config);

// What load_model throws, without reading weights: an InputError where the config or a tensor's name, shape or dtype is
// not what the architecture asks for.
void check_model(const ModelSource& source);

// The sizes of a model, for a person to read. Nothing: config.json does not say.
struct ModelDescription {
  std::optional<std::int64_t> context, layers, hidden, intermediate, heads, kv_heads, head_dim, vocab_size;
};

// What the fields that most architectures share say; and, of a known architecture, what it makes of them where they are
// silent (a head_dim, say). Never throws for what the config holds.
ModelDescription describe_model(const JsonField& config);

}  // namespace heddle
