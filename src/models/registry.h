// The architectures Heddle knows, by the name that config.json gives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace heddle {

struct LoadOptions {
  std::optional<DType> dtype;                               // of the weights; nothing: as stored
  std::function<void(std::size_t bytes_done)> on_progress;  // of checkpoint.total_bytes(); may be empty
};

// The model of a checkpoint, for one device. Throws InputError when the architecture is not known, or when config.json
// or the tensors are not as the architecture asks for.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options);

// architectures[0] of config.json. Throws InputError when there is none.
std::string architecture_of(const JsonField& config);

// Names that load_model knows, for messages.
std::vector<std::string> known_architectures();

}  // namespace heddle
