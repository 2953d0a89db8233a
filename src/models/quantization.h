// Names the quantisation of a checkpoint, which Heddle does not read yet.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "weights/tensor_source.h"

namespace heddle {

// A sentence with the method that quantization_config or compression_config of config.json names, its bits and what to
// do; nothing if the config names none. Never throws because of the fields' contents.
std::optional<std::string> quantization_in(const JsonField& config);

// The same by the names of tensors, for folders whose config.json does not say it (those of AutoGPTQ and AutoAWQ did
// not). Nothing if no tensor looks quantised.
std::optional<std::string> quantization_in(const TensorSource& source);

}  // namespace heddle
