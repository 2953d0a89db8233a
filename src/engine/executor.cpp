#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/trace.h"

namespace heddle {
namespace {

// Decode steps of more sequences than these are computed with a multiple of them. Up to 7 sequences more cost less than
// another graph: the weights are read all the same.
constexpr int kExactBatch = 8;
constexpr int kManySequences = 64;
constexpr int kCoarseBatch = 32;

bool on_gpu(Device device) {
  return device.kind == DeviceKind::cuda;
}

std::size_t host_bytes(Device device, std::size_t size_bytes) {
  return on_gpu(device) ? size_bytes : 0;
}

std::size_t logits_bytes(const Model& model, const ExecutorLimits& limits) {
  return static_cast<std::size_t>(limits.step.max_samples) * static_cast<std::size_t>(model.shape().vocab_size) *
         sizeof(float);
}

Stream stream_on(Device device, ThreadPool& pool) {
  return on_gpu(device) ? Stream(device) : Stream(pool);
}

}  // namespace

KvPages cache_shape(const Model& model, const ExecutorLimits& limits) {
  const ModelShape& shape = model.shape();
  const int num_spare = on_gpu(model.device()) ? spare_pages_for(kCoarseBatch - 1, limits.page_size) : 0;
  return {.num_layers = shape.num_layers,
          .num_pages = limits.num_pages + num_spare,
          .page_size = limits.page_size,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .dtype = shape.dtype};
}

Executor::Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads)
    : limits_(limits),
      model_(std::move(model)),
      cache_(cache_shape(*model_, limits), device()),
      arena_(placed_bytes(limits.step) + model_->arena_bytes(limits.step), device()),
      pool_(on_gpu(device()) ? 1 : threads),
      host_step_(host_bytes(device(), placed_bytes(limits.step))),
      host_logits_(host_bytes(device(), logits_bytes(*model_, limits))),
      stream_(stream_on(device(), pool_)) {
  if (!on_gpu(device())) return;
  padded_.reserve(limits.step);
  enqueue_clear(stream_, arena_.take_bytes(arena_.capacity_bytes()), arena_.capacity_bytes());
  stream_.synchronize();
}

Tensor Executor::run(const StepPlan& plan) {
  return guarded(plan, [&] {
    const Tensor logits = enqueue(plan);
    return on_gpu(device()) ? enqueue_fetch(logits, std::ssize(plan.samples)) : logits;
  });
}

void Executor::compute(const StepPlan& plan) {
  guarded(plan, [&] { return enqueue(plan); });
}

// What `enqueue` returns, once it is computed.
template <class Enqueue>
Tensor Executor::guarded(const StepPlan& plan, Enqueue enqueue) {
  if (stuck_) throw Failure("an earlier step has not ended in time; start again");
  validate(plan, limits_.step, limits_.page_size, limits_.num_pages, model_->shape().vocab_size);
  try {
    const Tensor logits = enqueue();
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
  const Span span(stream_, "step");
  cache_.copy_pages(plan.page_copies, stream_);
  if (on_gpu(device())) return is_decode(plan) ? enqueue_decode(plan) : enqueue_on_gpu(plan);
  arena_.reset();
  const StepTensors step = place(plan, limits_.step, arena_);
  return model_->run(step, cache_.pages(), arena_, stream_);
}

Tensor Executor::enqueue_on_gpu(const StepPlan& plan) {
  arena_.reset();
  auto* on_device = static_cast<std::byte*>(arena_.take_bytes(placed_bytes(limits_.step)));
  const StepTensors step = place(plan, limits_.step, host_step_.data(), on_device);
  enqueue_copy(stream_, on_device, host_step_.data(), placed_bytes(limits_.step, step.num_sequences));
  return model_->run(step, cache_.pages(), arena_, stream_);
}

Tensor Executor::enqueue_decode(const StepPlan& plan) {
  const auto num_sequences = static_cast<int>(plan.sequences.size());
  const int batch = decode_batch(num_sequences);
  if (batch > num_sequences) pad_decode(plan, batch, limits_.page_size, limits_.num_pages, padded_);
  const StepPlan& step = batch > num_sequences ? padded_ : plan;
  Decode& decode = decodes_[batch];
  if (!decode.computed) {
    decode.logits = enqueue_on_gpu(step);
    decode.computed = true;
    return decode.logits;
  }
  if (!decode.graph) {
    decode.graph = Graph(stream_, [&] { decode.logits = enqueue_on_gpu(step); });
  } else {
    // The graph copies what lies there when it runs.
    arena_.reset();
    place(step, limits_.step, host_step_.data(),
          static_cast<std::byte*>(arena_.take_bytes(placed_bytes(limits_.step))));
  }
  decode.graph.launch(stream_);
  return decode.logits;
}

int Executor::decode_batch(int num_sequences) const {
  if (num_sequences <= kExactBatch) return num_sequences;
  const int batch = round_up(num_sequences, num_sequences <= kManySequences ? kExactBatch : kCoarseBatch);
  const StepLimits& limits = limits_.step;
  const int most = std::min({limits.max_sequences, limits.max_tokens, limits.max_samples});
  // A page table must have room for the pages of the sequences that are added.
  const bool fits = spare_pages_for(batch - num_sequences, limits_.page_size) <= limits.max_pages_per_sequence;
  return fits ? std::min(batch, most) : num_sequences;
}

Tensor Executor::enqueue_fetch(Tensor logits, std::int64_t num_rows) {
  require(logits.row_stride == logits.columns, "executor: the logits' rows do not follow each other");
  const std::size_t bytes =
      static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(logits.columns) * size_of(logits.dtype);
  enqueue_copy(stream_, host_logits_.data(), logits.data, bytes);
  logits.data = host_logits_.data();
  logits.rows = num_rows;
  return logits;
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
