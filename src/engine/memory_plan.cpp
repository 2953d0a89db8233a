#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle {

MemoryPlan plan_memory(Model& outline, const EngineOptions& options, std::size_t available) {
  const std::size_t weights = outline.shape().weight_bytes;
  const ExecutorLimits limits = executor_limits(outline, options, available > weights ? available - weights : 0);
  return {.weights = weights,
          .step = step_bytes(outline, limits),
          .cache = cache_shape(outline, limits).size_bytes(),
          .other = kOtherGpuBytes,
          .cache_tokens = std::int64_t{limits.num_pages} * limits.page_size,
          .available = available};
}

std::string memory_text(std::size_t size_bytes) {
  const double mib = static_cast<double>(size_bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string text_of(const MemoryPlan& plan) {
  return fmt::format(
      "{} of weights, {} for a step, {} for keys and values of {} tokens, {} for kernels and graphs: {} of {}",
      memory_text(plan.weights), memory_text(plan.step), memory_text(plan.cache), plan.cache_tokens,
      memory_text(plan.other), memory_text(plan.total()), memory_text(plan.available));
}

std::string why_too_large(const MemoryPlan& plan) {
  if (plan.total() <= plan.available) return {};
  const std::size_t missing = plan.total() - plan.available;
  const std::size_t without_cache = plan.weights + plan.step + plan.other;
  std::string fits = "a smaller model, or weights of fewer bits (--dtype), would fit, or a GPU with more free memory";
  if (without_cache < plan.available && plan.cache > 0) {
    const double share = static_cast<double>(plan.available - without_cache) / static_cast<double>(plan.cache);
    fits += fmt::format("; beside these weights, keys and values of {} tokens",
                        static_cast<std::int64_t>(share * static_cast<double>(plan.cache_tokens)));
  }
  return fmt::format("{} are missing: {}, which are free; {}", memory_text(missing), text_of(plan), fits);
}

}  // namespace heddle
