// A model before loading: its config and its tensors, from a checkpoint's folder or synthetic.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "weights/tensor_source.h"

namespace heddle {

class ModelSource : public TensorSource {
 public:
  virtual JsonField config() const = 0;                            // config.json, an object
  virtual std::optional<JsonField> generation_config() const = 0;  // generation_config.json, an object, or nothing
  virtual std::size_t total_bytes() const = 0;                     // of all tensors
};

// Opens what a user calls `model`: the folder of a checkpoint, or "synth:NAME" (synthetic_model.h). Throws InputError
// as Checkpoint and parse_synthetic_name do.
std::unique_ptr<ModelSource> open_model(const std::string& model);

}  // namespace heddle
