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
      arena_(placed_bytes(limits.step) + model_->arena_bytes(limits.step.max_tokens, limits.step.max_samples)),
      pool_(threads),
      stream_(pool_) {}

Tensor Executor::run(const StepPlan& plan) {
  if (stuck_) throw Failure("an earlier step has not ended in time; start again");
  validate(plan, limits_.step, limits_.page_size, limits_.num_pages, model_->shape().vocab_size);
  try {
    const Tensor logits = enqueue(plan);
    stream_.synchronize();
    return logits;
  } catch (const Timeout&) {
    stuck_ = true;
    throw;
  } catch (...) {
    drain();
    throw;
  }
}

Tensor Executor::enqueue(const StepPlan& plan) {
  arena_.reset();
  const StepTensors step = place(plan, limits_.step, arena_);
  const Span span(stream_, "step");
  cache_.copy_pages(plan.page_copies, stream_);
  return model_->run(step, cache_.pages(), arena_, stream_);
}

// Waits for what a step that failed has enqueued, since the next one will write where it reads.
void Executor::drain() {
  try {
    stream_.synchronize();
  } catch (const Timeout&) {
    stuck_ = true;
  } catch (...) {  // of the step that is reported already
  }
}

std::span<const float> logits_row(const Tensor& logits, std::int64_t row) {
  require(logits.dtype == DType::float32 && row >= 0 && row < logits.rows, "logits: row {} of {}", row, logits.rows);
  const auto columns = static_cast<std::size_t>(logits.columns);
  return {static_cast<const float*>(logits.data) + static_cast<std::size_t>(row * logits.row_stride), columns};
}

}  // namespace heddle
