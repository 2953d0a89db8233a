// Looks for damaged weights, after a model has given logits that are not numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weights/tensor_source.h"

namespace heddle {

// A sentence that names the first tensor (in order of names) with a NaN or an infinity, its file and how many it has;
// nothing if there is none. Reads all float32, bfloat16 and float16 tensors. Throws as TensorSource::rows does, Failure
// when a file can no longer be read.
std::optional<std::string> find_damage(const TensorSource& source);

// The same of one tensor, which the source must have.
std::optional<std::string> find_damage(const TensorSource& source, std::string_view name);

}  // namespace heddle
