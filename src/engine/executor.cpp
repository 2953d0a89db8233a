#include "engine/executor.h"

#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/trace.h"

namespace heddle {
namespace {

KvPages cache_shape(const ModelShape& shape, const ExecutorLimits& limits) {
  return {.num_layers = shape.num_layers,
          .num_pages = limits.num_pages,
          .page_size = limits.page_size,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .dtype = shape.dtype};
}

}  // namespace

Executor::Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads)
    : limits_(limits),
      model_(std::move(model)),
      cache_(cache_shape(model_->shape(), limits)),
      arena_(model_->arena_bytes(limits.max_tokens, limits.max_sequences) +
             placed_bytes(limits.max_tokens, limits.max_sequences, limits.num_pages)),
      pool_(threads),
      stream_(pool_) {}

Tensor Executor::run(const StepPlan& plan) {
  validate(plan, limits_.page_size, limits_.num_pages, model_->shape().vocab_size);
  require(std::ssize(plan.tokens) <= limits_.max_tokens && std::ssize(plan.sequences) <= limits_.max_sequences,
          "step: {} tokens of {} sequences, the limits are {} and {}", plan.tokens.size(), plan.sequences.size(),
          limits_.max_tokens, limits_.max_sequences);
  arena_.reset();
  const StepTensors step = place(plan, arena_);
  Tensor logits;
  {
    const Span span(stream_, "step");
    cache_.copy_pages(plan.page_copies, stream_);
    logits = model_->run(step, cache_.pages(), arena_, stream_);
  }
  stream_.synchronize();
  return logits;
}

std::span<const float> logits_row(const Tensor& logits, std::int64_t row) {
  require(logits.dtype == DType::float32 && row >= 0 && row < logits.rows, "logits: row {} of {}", row, logits.rows);
  const auto columns = static_cast<std::size_t>(logits.columns);
  return {static_cast<const float*>(logits.data) + static_cast<std::size_t>(row * logits.row_stride), columns};
}

}  // namespace heddle
