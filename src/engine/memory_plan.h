// Estimates the device memory that a model needs, before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "models/model.h"

namespace heddle {

struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t step = 0;   // tensors of the largest step
  std::size_t cache = 0;  // keys and values
  std::size_t other = 0;  // CUDA's own, for kernels and graphs
  std::int64_t cache_tokens = 0;
  std::size_t available = 0;  // on the device, before loading

  std::size_t total() const { return weights + step + cache + other; }
};

// For an engine with these options and a model on a GPU; models/registry.h's outline is enough. `available`: bytes
// before loading. Never throws when memory is short: total() then exceeds available.
MemoryPlan plan_memory(Model& outline, const EngineOptions& options, std::size_t available);

// "15.0 GiB of weights, 1.1 GiB for a step, ...".
std::string text_of(const MemoryPlan& plan);

// A sentence for a plan that is too large: how much is missing and what would fit; empty if it fits.
std::string why_too_large(const MemoryPlan& plan);

// Formats bytes, "23.5 GiB".
std::string memory_text(std::size_t size_bytes);

}  // namespace heddle
