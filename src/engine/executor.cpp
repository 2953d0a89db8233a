#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/trace.h"
#include "kernels/argmax.h"

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

std::size_t samples_bytes(const StepLimits& limits) {
  return Arena::rounded(static_cast<std::size_t>(limits.max_samples) * sizeof(SampleRow));
}

SampleRow sample_row(const StepSample& sample) {
  const SamplingParams& params = sample.params;
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = params.seed,
          .top_k = params.top_k,
          .position = sample.position};
}

Stream stream_on(Device device, ThreadPool& pool) {
  return on_gpu(device) ? Stream(device) : Stream(pool);
}

}  // namespace

std::size_t arena_bytes(const Model& model, const ExecutorLimits& limits) {
  const std::size_t samples = host_bytes(model.device(), samples_bytes(limits.step));
  return placed_bytes(limits.step) + samples + model.arena_bytes(limits.step);
}

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
      arena_(arena_bytes(*model_, limits), device()),
      pool_(on_gpu(device()) ? 1 : threads),
      host_step_(host_bytes(device(), placed_bytes(limits.step))),
      host_samples_(host_bytes(device(), samples_bytes(limits.step))),
      host_logits_(host_bytes(device(), logits_bytes(*model_, limits))),
      host_tokens_(host_bytes(device(), static_cast<std::size_t>(limits.step.max_samples) * sizeof(std::int32_t))),
      stream_(stream_on(device(), pool_)) {
  if (!on_gpu(device())) return;
  padded_.reserve(limits.step);
  enqueue_clear(stream_, arena_.take_bytes(arena_.capacity_bytes()), arena_.capacity_bytes());
  stream_.synchronize();
}

Tensor Executor::run(const StepPlan& plan) {
  Tensor logits;
  guarded(plan, [&] {
    enqueue(plan, Choice::none);
    logits = on_gpu(device()) ? enqueue_fetch() : logits_;
  });
  return logits;
}

std::span<const std::int32_t> Executor::sample(const StepPlan& plan) {
  require(on_gpu(device()), "executor: tokens are sampled on GPUs; on the CPU from logits");
  guarded(plan, [&] {
    const bool greedy =
        std::ranges::all_of(plan.samples, [](const StepSample& sample) { return sample.params.temperature == 0; });
    enqueue(plan, greedy ? Choice::greedy : Choice::sampled);
  });
  return {reinterpret_cast<const std::int32_t*>(host_tokens_.data()), plan.samples.size()};
}

Tensor Executor::fetch_logits() {
  if (!on_gpu(device())) return logits_;
  const Tensor logits = enqueue_fetch();
  stream_.synchronize();
  return logits;
}

void Executor::compute(const StepPlan& plan) {
  guarded(plan, [&] { enqueue(plan, Choice::none); });
}

// Enqueues and sees it through.
template <class Enqueue>
void Executor::guarded(const StepPlan& plan, Enqueue enqueue) {
  if (stuck_) throw Failure("an earlier step has not ended in time; start again");
  validate(plan, limits_.step, limits_.page_size, limits_.num_pages, model_->shape().vocab_size);
  try {
    enqueue();
    stream_.synchronize();
  } catch (const Timeout&) {
    stuck_ = true;
    throw;
  } catch (const Failure& failure) {
    drain();
    if (!on_gpu(device())) throw;
    throw_error<Failure>("{}: {}; --device cpu works without it", name_of(device()), failure.what());
  } catch (...) {
    drain();
    throw;
  }
}

void Executor::enqueue(const StepPlan& plan, Choice choice) {
  const Span span(stream_, "step");
  cache_.copy_pages(plan.page_copies, stream_);
  if (on_gpu(device())) {
    logits_ = is_decode(plan) ? enqueue_decode(plan, choice) : enqueue_on_gpu(plan, choice);
    logits_.rows = std::ssize(plan.samples);  // without those of sequences that were added
    return;
  }
  arena_.reset();
  const StepTensors step = place(plan, limits_.step, arena_);
  logits_ = model_->run(step, cache_.pages(), arena_, stream_);
}

Tensor Executor::enqueue_on_gpu(const StepPlan& plan, Choice choice) {
  const StepTensors step = place_on_gpu(plan, choice);
  enqueue_copy(stream_, const_cast<std::int32_t*>(step.tokens), host_step_.data(),
               placed_bytes(limits_.step, step.num_sequences));
  if (choice == Choice::sampled)
    enqueue_copy(stream_, samples_, host_samples_.data(), plan.samples.size() * sizeof(SampleRow));
  const Tensor logits = model_->run(step, cache_.pages(), arena_, stream_);
  enqueue_choice(logits, choice);
  return logits;
}

// Writes the step where the host keeps it; returns it as it will lie on the GPU, where every step begins alike.
StepTensors Executor::place_on_gpu(const StepPlan& plan, Choice choice) {
  arena_.reset();
  auto* on_device = static_cast<std::byte*>(arena_.take_bytes(placed_bytes(limits_.step)));
  samples_ = static_cast<SampleRow*>(arena_.take_bytes(samples_bytes(limits_.step)));
  if (choice == Choice::sampled) {
    auto* rows = reinterpret_cast<SampleRow*>(host_samples_.data());
    std::ranges::transform(plan.samples, rows, sample_row);
  }
  return place(plan, limits_.step, host_step_.data(), on_device);
}

void Executor::enqueue_choice(const Tensor& logits, Choice choice) {
  auto* tokens =
      reinterpret_cast<std::int32_t*>(host_tokens_.data());  // a few bytes, which the GPU writes over the bus
  if (logits.rows == 0 || choice == Choice::none) return;
  if (choice == Choice::greedy) return argmax({.logits = logits, .tokens = tokens}, stream_);
  heddle::sample({.logits = logits, .rows = samples_, .tokens = tokens}, stream_);
}

Tensor Executor::enqueue_decode(const StepPlan& plan, Choice choice) {
  const auto num_sequences = static_cast<int>(plan.sequences.size());
  const int batch = decode_batch(num_sequences);
  if (batch > num_sequences) pad_decode(plan, batch, limits_.page_size, limits_.num_pages, padded_);
  const StepPlan& step = batch > num_sequences ? padded_ : plan;
  Decode& decode = decodes_[{batch, choice}];
  if (!decode.computed) {
    decode.logits = enqueue_on_gpu(step, choice);
    decode.computed = true;
    return decode.logits;
  }
  if (!decode.graph)
    decode.graph = Graph(stream_, [&] { decode.logits = enqueue_on_gpu(step, choice); });
  else
    place_on_gpu(step, choice);  // what the graph copies when it runs
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

Tensor Executor::enqueue_fetch() {
  require(logits_.row_stride == logits_.columns, "executor: the logits' rows do not follow each other");
  Tensor fetched = logits_;
  fetched.data = host_logits_.data();
  const auto elements = static_cast<std::size_t>(fetched.rows) * static_cast<std::size_t>(fetched.columns);
  enqueue_copy(stream_, fetched.data, logits_.data, elements * size_of(fetched.dtype));
  return fetched;
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
