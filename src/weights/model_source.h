// A model before loading: its config and its tensors, from a checkpoint's folder or synthetic.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "weights/tensor_source.h"

namespace heddle {

class ModelSource : public TensorSource {
 public:
  virtual JsonField config() const = 0;                            // config.json, an object
  virtual std::optional<JsonField> generation_config() const = 0;  // generation_config.json, an object, or nothing
  virtual std::size_t total_bytes() const = 0;                     // of all tensors

  // Sentences about what is there and has no effect, for whoever loads the model.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Opens what a user calls `model`: what model_folder.h finds, or "synth:NAME" (synthetic_model.h). Throws InputError as
// model_folder, Checkpoint and parse_synthetic_name do.
std::unique_ptr<ModelSource> open_model(const std::string& model);

}  // namespace heddle
