// What a model will take of its device's memory, foreseen before anything is loaded.
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
  std::size_t other = 0;  // what CUDA takes for kernels and graphs
  std::int64_t cache_tokens = 0;
  std::size_t available = 0;  // on the device, before anything is loaded

  std::size_t total() const { return weights + step + cache + other; }
};

// Of an engine with these options and a model on a GPU, of which models/registry.h's outline is enough.
// `available`: bytes, before the weights are there. Never throws for want of memory: total() then exceeds available.
MemoryPlan plan_memory(const Model& outline, const EngineOptions& options, std::size_t available);

// "15.0 GiB of weights, 1.1 GiB for a step, ...".
std::string text_of(const MemoryPlan& plan);

// Why the plan is too large, how much is missing and what would fit; empty: it is not.
std::string why_too_large(const MemoryPlan& plan);

// Bytes of memory, "23.5 GiB".
std::string memory_text(std::size_t size_bytes);

}  // namespace heddle
